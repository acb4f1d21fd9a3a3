"""The service: predictions, updates and evidence over HTTP. `expunge serve` runs it, `expunge.Client` talks to it."""

from expunge.service.client import Client, ServiceError

__all__ = ["Client", "ServiceError"]
