"""Detached Ed25519 signatures over a listing of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from loop.core.errors import UserError

MOST_BYTES = 16_384


def signer_of(listing: str, signature: Path, public_key: Path) -> str:
    """The fingerprint (SHA-256 of the key's DER form) of who signed the listing; UserError when nobody did.

    The signature is the 64 raw bytes of RFC 8032, the key a PEM file: what ``openssl pkeyutl
    -sign -rawin`` and ``openssl pkey -pubout`` write.
    """
    try:
        key = load_pem_public_key(_read(public_key))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{public_key} is not a public key in PEM form: give the owner's Ed25519 key.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{public_key} is not an Ed25519 key: ask the owner for one, and for a signature by it.")
    try:
        key.verify(_read(signature), listing.encode())
    except InvalidSignature:
        raise UserError(
            f"{signature} is not this key's signature of the folder's files: they were changed, or another key signed."
        ) from None
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            found = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}): give a file.") from error
    if len(found) > MOST_BYTES:
        raise UserError(f"{file} is longer than any key or signature: give the file itself.")
    return found
