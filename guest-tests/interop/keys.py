"""Keys of the tests with TLS, and their files."""

from initiator import HOSTID, HOSTNQN
from tls import interchange

CONFIGURED = {1: bytes(range(32)), 2: bytes(range(48))}  # by hash
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
OTHER = bytes(range(7, 39))  # of SHA-256


def key_text(hash_number):
    return interchange(CONFIGURED[hash_number], hash_number)


def key_file(directory, text, mode=0o600, name="disk.key"):
    """Writes a file with a key or a secret."""
    file = directory / name
    file.write_text(text + "\n")
    file.chmod(mode)
    return file


def key_options(file):
    """Options of a daemon that uses a key, as the host for which the tests derive keys."""
    return "--tls-key-file", file, *HOST_OPTIONS


HOST_OPTIONS = ("--hostnqn", HOSTNQN, "--hostid", HOSTID)
