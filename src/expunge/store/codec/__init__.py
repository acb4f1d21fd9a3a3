"""Models, learners and fronts as bytes, in formats that run no code when they are loaded."""

from expunge.store.codec.codec import Encoded, decode, encode
from expunge.store.codec.models import decode_model, encode_model
from expunge.store.codec.writer import FORMATS

__all__ = ["FORMATS", "Encoded", "decode", "decode_model", "encode", "encode_model"]
