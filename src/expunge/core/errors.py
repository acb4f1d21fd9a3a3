"""The errors that expunge raises on purpose, as one tree.

    ExpungeError
    ├── InputError (also ValueError)      the caller's input is wrong; nothing was changed
    │   ├── ParameterError                an option has an impossible value
    │   │   ├── MissingExtraError         an optional package is not installed (also ImportError)
    │   │   └── NotPublishedError         (also AttributeError) the promise in force does not allow this to be published
    │   └── RecordError                   one record of a batch is at fault, and is named
    │       ├── UnknownRecordError        a deletion of an id that is not there
    │       │   └── UnknownSubjectError   or of a subject
    │       └── DuplicateRecordError      an addition of an id that is there already
    ├── TrainingError                     a shard's learner failed; the shard is named (inside the boundary)
    ├── AccountingError
    │   ├── UnknownEventError             an accountant was given an event that it cannot bound
    │   └── BudgetExhaustedError          the budget is spent and the deployment was told to refuse
    ├── GuaranteeError                    the wanted guarantee cannot be given
    ├── RequestError (also ValueError)    a request is unknown, or in a state in which it cannot be changed
    └── StoreError                        a deployment's folder cannot be used; nothing was lost
        ├── FolderBusyError               another process has it open for writing
        └── FormatError                   it was written by a newer version, or is damaged
            └── ModelFormatError          a model cannot be stored or loaded safely

Messages are one line and never quote votes, shard membership or anything else that depends on the secret
randomness, except `TrainingError`, which is raised to the operator only.
"""

from __future__ import annotations

from collections.abc import Hashable


class ExpungeError(Exception):
    """The root of every error that expunge raises on purpose. Its message is one line, also when it quotes input."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(" ".join(a.splitlines()) if isinstance(a, str) else a for a in args))


class InputError(ExpungeError, ValueError):
    """The caller's input is wrong; nothing was changed."""


class ParameterError(InputError):
    """An option has an impossible value."""


class MissingExtraError(ParameterError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class NotPublishedError(ParameterError, AttributeError):
    """The promise in force does not allow this to be published. As an AttributeError it is what `hasattr` looks for."""


class RecordError(InputError):
    """One record of a batch is at fault; `record` is its id (or its subject's)."""

    def __init__(self, message: str, record: Hashable) -> None:
        super().__init__(message)
        self.record = record

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, Hashable]]:
        return type(self), (str(self), self.record)


class UnknownRecordError(RecordError):
    """A deletion names an id (or a subject) that is not in the dataset."""


class UnknownSubjectError(UnknownRecordError):
    """A deletion names a subject that has no record in the dataset; `record` is the subject."""


class DuplicateRecordError(RecordError):
    """An addition names an id that is in the dataset already."""


class TrainingError(ExpungeError):
    """The learner failed on one shard; `shard` is its number (inside the trust boundary)."""

    def __init__(self, message: str, shard: int) -> None:
        super().__init__(message)
        self.shard = shard

    def __reduce__(self) -> tuple[type[TrainingError], tuple[str, int]]:
        return type(self), (str(self), self.shard)


class AccountingError(ExpungeError):
    """Privacy loss cannot be accounted for."""


class UnknownEventError(AccountingError):
    """An accountant was given an event that it cannot bound."""


class BudgetExhaustedError(AccountingError):
    """The budget is spent and the deployment was told to refuse."""


class GuaranteeError(ExpungeError):
    """The wanted guarantee cannot be given."""


class RequestError(ExpungeError, ValueError):
    """A request is unknown, or in a state in which it cannot be changed."""


class StoreError(ExpungeError):
    """A deployment's folder cannot be used; nothing was lost."""


class FolderBusyError(StoreError):
    """Another process has the folder open for writing."""


class FormatError(StoreError):
    """The folder was written by a newer version, or is damaged."""


class ModelFormatError(FormatError):
    """A model cannot be stored or loaded safely."""


class VacuousPromiseWarning(UserWarning):
    """An (α,β,γ) promise was asked for, and the shards and options give none that means anything."""
