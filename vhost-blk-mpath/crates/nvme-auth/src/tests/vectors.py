"""Prints the vectors of vectors.rs, from the rules of the specification and nothing of this crate."""
import hashlib, hmac, struct

HOSTNQN = b"nqn.2014-08.org.nvmexpress:uuid:6e0e9d1c-2b3f-4b53-9a4a-3c0c6c0f5a11"
SUBNQN = b"nqn.2026-01.org.example:disk1"


def ffdhe2048():
    e, term, k = 0, 1 << 2048, 1
    while term:
        e, term, k = e + term, term // k, k + 1
    return 2**2048 - 2**1984 + ((e >> 130) + 560316) * 2**64 - 1


def random(seed):
    raw = bytes((i * (seed | 1) + seed) % 256 for i in range(132))
    return int.from_bytes(raw[:64], "big") | 1 << 511, raw[64:128], max(struct.unpack("<I", raw[128:])[0], 1)


def mac(hash_name, key, *parts):
    return hmac.new(key, b"".join(parts), hash_name).digest()


def response(hash_name, key, session, challenge, seq, tid, scc, role, prover, verifier):
    if session:
        challenge = mac(hash_name, session, challenge)
    return mac(hash_name, key, challenge, struct.pack("<IHB", seq, tid, scc), role, prover, b"\0", verifier)


def transaction(hash_name, hash_id, dh, scc):
    tid, length = 0x1234, hashlib.new(hash_name).digest_size
    host_key = mac("sha256", b"\1" * 32, HOSTNQN, b"NVMe-over-Fabrics")
    ctrl_key = mac("sha384", b"\2" * 48, SUBNQN, b"NVMe-over-Fabrics")
    (x, c2, s2), (y, c1, s1) = random(3), random(5)
    c1, c2, session, host_value, ctrl_value = c1[:length], c2[:length], b"", b"", b""
    if dh:
        p = ffdhe2048()
        host_value, ctrl_value = (pow(2, n, p).to_bytes(256, "big") for n in (x, y))
        session = hashlib.new(hash_name, pow(2, x * y, p).to_bytes(256, "big")).digest()
    r1 = response(hash_name, host_key, session, c1, s1, tid, scc, b"HostHost", HOSTNQN, SUBNQN)
    r2 = response(hash_name, ctrl_key, session, c2, s2, tid, scc, b"Controller", SUBNQN, HOSTNQN)
    challenge = struct.pack("<BBHHBBBBHI", 1, 1, 0, tid, length, 0, hash_id, dh, len(ctrl_value), s1) + c1 + ctrl_value
    reply = struct.pack("<BBHHBBBBHI", 1, 2, 0, tid, length, 0, 1, 0, len(host_value), s2) + r1 + c2 + host_value
    success1 = struct.pack("<BBHHBBB7x", 1, 3, 0, tid, length, 0, 1) + r2
    for name, message in ("Challenge", challenge), ("Reply", reply), ("Success1", success1):
        print(name, hashlib.sha256(message).hexdigest())
    print("response of the host", r1.hex())
    if dh:
        print("session key", session.hex())
        print("generated PSK", mac(hash_name, session, c1, c2).hex())


transaction("sha256", 1, 0, 0)
transaction("sha384", 2, 1, 2)
