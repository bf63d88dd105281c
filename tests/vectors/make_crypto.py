#!/usr/bin/env python3
"""Writes crypto.json: known answers of stock Salt for the crate saltern-crypto.

Run it with the python of an environment in which Salt 3006, 3007 or 3008 is installed:

    /path/to/venv/bin/python tests/vectors/make_crypto.py            # add or renew
    /path/to/venv/bin/python tests/vectors/make_crypto.py --check    # compare, write nothing

Every release has a section of its own in the file; a run touches only the section of the
Salt that runs it. Running it again changes nothing: the keys and the OAEP ciphertexts that
are in the file already are kept (after this Salt has read them), everything else is
deterministic. With --new-keys it begins from an empty file; then run it with each release.

The private keys in the file are for tests and are used nowhere else.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile

import salt.crypt
import salt.payload
import salt.utils.crypt
import salt.version
from cryptography.hazmat.primitives import serialization

OUT = pathlib.Path(__file__).with_name("crypto.json")
NOTE = "Known answers of stock Salt, made by make_crypto.py. The keys are for tests only."
PASSPHRASE = "correct horse \u00e4"
KEY_SIZES = {"master": 2048, "minion": 2048, "large": 3072}
ENC_ALGOS = ("OAEP-SHA1", "OAEP-SHA224")
SIG_ALGOS = ("PKCS1v15-SHA1", "PKCS1v15-SHA224")
HASH_TYPES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")


def fixed_bytes(label, count):
    """Bytes that look random and are the same in every run."""
    return hashlib.shake_256(label.encode()).digest(count)


def generate(size, passphrase, directory):
    """One private key as stock writes it: gen_keys has one signature before 3008, one since."""
    if hasattr(salt.crypt, "write_keys"):
        path = salt.crypt.write_keys(directory, "key", size, passphrase=passphrase)
    else:
        path = salt.crypt.gen_keys(directory, "key", size, passphrase=passphrase)
    base = pathlib.Path(path)
    return base.read_text(), base.with_suffix(".pub").read_text()


def make_key(size):
    """One key in every PEM form; the first two are stock's own, the others its library's."""
    forms = {"passphrase": PASSPHRASE, "bits": size}
    with tempfile.TemporaryDirectory() as directory:
        forms["pkcs1"], forms["public"] = generate(size, None, directory)
    key = serialization.load_pem_private_key(forms["pkcs1"].encode(), password=None)
    pem = serialization.Encoding.PEM
    private = serialization.PrivateFormat
    locked = serialization.BestAvailableEncryption(PASSPHRASE.encode())
    for name, form, lock in (
        ("pkcs1_encrypted", private.TraditionalOpenSSL, locked),
        ("pkcs8", private.PKCS8, serialization.NoEncryption()),
        ("pkcs8_encrypted", private.PKCS8, locked),
    ):
        forms[name] = key.private_bytes(pem, form, lock).decode()
    bare = key.public_key().public_bytes(pem, serialization.PublicFormat.PKCS1)
    forms["public_pkcs1"] = bare.decode()
    # The wrong label over the right bytes: stock's library takes it, old tools wrote it.
    forms["public_mislabelled"] = forms["public"].replace("PUBLIC KEY", "RSA PUBLIC KEY")
    return forms


class Pair:
    """Stock's own key objects over one key, loaded from files as every release can."""

    def __init__(self, directory, name, forms):
        base = pathlib.Path(directory) / name
        self.private_forms = {}
        for form in ("pkcs1", "pkcs1_encrypted", "pkcs8", "pkcs8_encrypted"):
            path = base.with_suffix("." + form)
            path.write_text(forms[form])
            passphrase = forms["passphrase"] if form.endswith("encrypted") else None
            load = getattr(salt.crypt.PrivateKey, "from_file", salt.crypt.PrivateKey)
            self.private_forms[form] = load(str(path), passphrase)
        for form in ("public", "public_pkcs1", "public_mislabelled"):
            path = base.with_suffix("." + form)
            path.write_text(forms[form])
            key = salt.crypt.PublicKey.from_file(str(path))
            if form == "public":
                self.public_path, self.public = str(path), key
        self.private = self.private_forms["pkcs1"]


def key_strings():
    """The text that is signed for an AES key: its SHA-256 in hexadecimal."""
    with FixedRandom("key string"):
        for _ in range(3):
            key_string = salt.crypt.Crypticle.generate_key_string()
            digest = hashlib.sha256(key_string.encode()).hexdigest()
            yield {"key_string": key_string, "digest": digest}


def x931(pairs):
    digest = next(key_strings())["digest"].encode()
    for name, pair in pairs.items():
        block = pair.private.key.key_size // 8
        longest = fixed_bytes("longest", block - 2)
        # Not empty, and not one byte less than the longest: OpenSSL cannot unpad those.
        for message in (b"salt", digest, b"\xcc", longest[:-2], longest):
            signature = pair.private.encrypt(message)
            assert pair.public.decrypt(signature) == message
            for key in pair.private_forms.values():
                assert key.encrypt(message) == signature
            yield {"key": name, "message": message.hex(), "signature": signature.hex()}


def signatures(pairs):
    for name, pair in pairs.items():
        for algo in SIG_ALGOS:
            for message in (b"", b"salt", fixed_bytes("signed", 1000)):
                signature = pair.private.sign(message, algo)
                assert pair.public.verify(message, signature, algo)
                yield {
                    "key": name,
                    "algo": algo,
                    "message": message.hex(),
                    "signature": signature.hex(),
                }


def ciphertexts(pairs, old):
    """OAEP is random: what is in the file is kept, once this Salt has decrypted it."""
    for name, pair in pairs.items():
        for algo in ENC_ALGOS:
            for message in (b"", b"0123456789abcdef", fixed_bytes("key", 56).hex()[:76].encode()):
                entry = {"key": name, "algo": algo, "message": message.hex()}
                kept = [e for e in old if {k: e.get(k) for k in entry} == entry]
                if kept:
                    entry["ciphertext"] = kept[0]["ciphertext"]
                else:
                    entry["ciphertext"] = pair.public.encrypt(message, algo).hex()
                plain = pair.private.decrypt(bytes.fromhex(entry["ciphertext"]), algo)
                assert plain == message
                yield entry


class FixedRandom:
    """Makes os.urandom repeatable, for the keys and IVs that Crypticle takes from it."""

    def __init__(self, label):
        self.label, self.count = label, 0

    def __enter__(self):
        self.real, os.urandom = os.urandom, self.draw

    def __exit__(self, *_):
        os.urandom = self.real

    def draw(self, size):
        self.count += 1
        return fixed_bytes(f"{self.label} {self.count}", size)


def crypticles():
    loads = [{}, "", {"cmd": "test", "id": "m1"}, {"text": "\u00fc" * 40}, list(range(300))]
    # Every length around one block, so that every amount of padding occurs.
    loads += ["x" * size for size in range(20)]
    with FixedRandom("crypticle"):
        key_string = salt.crypt.Crypticle.generate_key_string()
        for load in loads:
            for nonce in (None, hashlib.md5(b"nonce").hexdigest()):
                crypticle = salt.crypt.Crypticle({}, key_string)
                message = crypticle.dumps(load, nonce=nonce)
                assert crypticle.loads(message, nonce=nonce) == load
                yield {
                    "key_string": key_string,
                    "nonce": nonce,
                    "packed": salt.payload.dumps(load).hex(),
                    "message": message.hex(),
                }


def fingerprints(pairs, directory):
    """Both ways of asking: by path (a file) and by key (text in memory)."""
    for name, pair in pairs.items():
        text = pathlib.Path(pair.public_path).read_text()
        texts = {
            "as written": text,
            "windows": text.replace("\n", "\r\n"),
            "blank lines": "\n" + text + "\n\n",
            "clean": salt.crypt.clean_key(text),
        }
        for text_name, text in texts.items():
            path = pathlib.Path(directory) / "finger"
            path.write_bytes(text.encode())
            finger = salt.utils.crypt.pem_finger
            yield {
                "case": f"{name}, {text_name}",
                "text": text,
                "by_path": {kind: finger(path=str(path), sum_type=kind) for kind in HASH_TYPES},
                "by_key": {kind: finger(key=text, sum_type=kind) for kind in HASH_TYPES},
            }


def clean_keys():
    texts = ["", "  ", "a", "a\n", "\n\na\nb\n\n", "a\r\nb\r\n", "a\rb", "a\n\r\nb"]
    texts += [" a \n b ", "\ta\t\n"]
    texts += [f"a{chr(end)}b" for end in (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0x2028, 0x2029)]
    spaces = (0x1C, 0x1F, 0x85, 0xA0, 0x200B, 0x3000, 0xFEFF)
    texts += [f"{chr(space)}a{chr(space)}" for space in spaces]
    for text in texts:
        yield {"given": text, "clean": salt.crypt.clean_key(text)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("--new-keys", action="store_true", help="begin from an empty file")
    options = parser.parse_args()

    before = OUT.read_text() if OUT.exists() and not options.new_keys else "{}"
    known = json.loads(before)
    release = salt.version.__version__
    keys = known.get("keys") or {name: make_key(size) for name, size in KEY_SIZES.items()}
    old = known.get("stock", {}).get(release, {})
    with tempfile.TemporaryDirectory() as directory:
        pairs = {name: Pair(directory, name, forms) for name, forms in keys.items()}
        section = {
            "key_strings": list(key_strings()),
            "x931": list(x931(pairs)),
            "signatures": list(signatures(pairs)),
            "ciphertexts": list(ciphertexts(pairs, old.get("ciphertexts", []))),
            "crypticles": list(crypticles()),
            "fingerprints": list(fingerprints(pairs, directory)),
            "clean_keys": list(clean_keys()),
        }
    stock = dict(known.get("stock", {}), **{release: section})
    result = {"note": NOTE, "keys": keys, "stock": dict(sorted(stock.items()))}
    after = json.dumps(result, indent=1) + "\n"
    if not options.check:
        OUT.write_text(after)
        print(f"{OUT}: section {release} written")
    elif after != before:
        sys.exit(f"{OUT} is not what Salt {release} gives: run make_crypto.py to renew it")
    else:
        print(f"{OUT}: Salt {release} gives the same")


if __name__ == "__main__":
    main()
