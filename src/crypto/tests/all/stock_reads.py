"""Reads, with stock Salt, what stock_reads.rs wrote. Input: one JSON document on stdin."""

import json
import pathlib
import sys

import salt.crypt
import salt.utils.crypt


def check(name, found, expected):
    if found != expected:
        sys.exit(f"{name}: {found!r} instead of {expected!r}")


def load(cls, path, *args):
    return getattr(cls, "from_file", cls)(str(path), *args)


def check_rsa(rsa, directory):
    message = bytes.fromhex(rsa["message"])

    def write(name):
        path = directory / name
        path.write_text(rsa[name])
        return path

    minion = load(salt.crypt.PrivateKey, write("minion_private"), None)
    for case in rsa["encrypted"]:
        plain = minion.decrypt(bytes.fromhex(case["ciphertext"]), case["algo"])
        check(case["algo"], plain, message)

    public_path = write("public")
    public = load(salt.crypt.PublicKey, public_path)
    for case in rsa["signed"]:
        signature = bytes.fromhex(case["signature"])
        check(case["algo"], public.verify(message, signature, case["algo"]), True)
        check(case["algo"], public.verify(message + b"!", signature, case["algo"]), False)
    check("x931", public.decrypt(bytes.fromhex(rsa["x931"])), message)
    # Stock joins the file's lines as they are, so it needs no newline at the end.
    check("finger", salt.utils.crypt.pem_finger(path=str(public_path)), rsa["finger"])

    plain = load(salt.crypt.PrivateKey, write("private"), None)
    locked = load(salt.crypt.PrivateKey, write("private_encrypted"), rsa["passphrase"])
    for key in (plain, locked):
        check("private key", key.encrypt(message).hex(), rsa["x931"])


def check_crypticle(case):
    crypticle = salt.crypt.Crypticle({}, case["key_string"])
    for message in case["messages"]:
        expected = "x" * message["length"]
        check("bare", crypticle.loads(bytes.fromhex(message["bare"])), expected)
        found = crypticle.loads(bytes.fromhex(message["with_nonce"]), nonce=case["nonce"])
        check("with nonce", found, expected)


def main():
    outputs = json.load(sys.stdin)
    check_rsa(outputs["rsa"], pathlib.Path(outputs["directory"]))
    check_crypticle(outputs["crypticle"])
    print("all read")


if __name__ == "__main__":
    main()
