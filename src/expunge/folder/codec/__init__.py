"""Models, learners and fronts as bytes, in formats that run no code when they are loaded."""

from expunge.folder.codec.codec import Encoded, decode, decode_model, encode, encode_model
from expunge.folder.codec.writer import FORMATS

__all__ = ["FORMATS", "Encoded", "decode", "decode_model", "encode", "encode_model"]
