"""Models, learners and fronts as bytes. Loading them runs no code, except of classes that the operator trusts."""

from expunge.folder.codec.codec import Encoded, decode, decode_model, encode, encode_model, require_trusted

__all__ = ["Encoded", "decode", "decode_model", "encode", "encode_model", "require_trusted"]
