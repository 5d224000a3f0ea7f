"""TLS and DH-HMAC-CHAP of the Linux in a guest, as NVMe/TCP target and as host. The guest must be of Debian 13 or later.

Linux leaves the TLS handshake to tlshd, which takes the pre-shared keys from the kernel's keyring `.nvme`. Both sides of a
connection can be in one guest. Then they have one tlshd and one keyring.
"""

import base64
import hashlib
import hmac
import struct
import zlib

from case import check
from rig import NQN

SUITES = ("trixie", "forky")  # the releases of Debian whose guest has what is needed
# GnuTLS before 3.8.11 computes every binder with SHA-256. So Debian 13's tlshd cannot use a PSK of SHA-384.
SHA384_SUITES = ("forky",)
HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}  # by their number in key formats and PSK identities
KEYRING = "%:.nvme"
NVMET = "/sys/kernel/config/nvmet"
# The kernel tests a Diffie-Hellman group at its first use. The largest group takes 20 s in an emulated guest.
GROUP_TIMEOUT = 90  # seconds

TLSHD = """
cat >tlshd.conf <<.
[debug]
loglevel=1
[authenticate]
keyrings=.nvme
.
tlshd -s -c tlshd.conf >>tlshd.log 2>&1 3<&- &
echo $! >tlshd.pid
for _ in $(seq 100); do
    grep -q "linked into our session keyring" tlshd.log && exit 0
    usleep 100000
done
cat tlshd.log
exit 1
"""


def interchange(key, hash_number):
    """A configured PSK in the PSK interchange format. `hash_number` 0 says that it is used as it is."""
    return f"NVMeTLSkey-1:{hash_number:02}:{_with_crc(key)}:"


def dhchap_secret(key, hash_number):
    """A DH-HMAC-CHAP secret as text. `hash_number` says which hash transforms the key, 0 none."""
    return f"DHHC-1:{hash_number:02}:{_with_crc(key)}:"


def _with_crc(key):
    return base64.b64encode(key + struct.pack("<I", zlib.crc32(key))).decode()


def _expand_label(hash_name, key, label, context, compat):
    """HKDF-Extract with a salt of zeroes, then HKDF-Expand-Label of RFC 8446. The length is that of `key`.

    libnvme before 1.15 makes the label in its own way (`compat`): a length in the host's byte order, and no lengths in front of
    label and context.
    """
    digest = hashlib.new(hash_name).digest_size
    prk = hmac.new(bytes(digest), key, hash_name).digest()
    if compat:
        info = struct.pack("<H", len(key)) + b"tls13 " + label + context
    else:
        label = b"tls13 " + label
        info = struct.pack(">H", len(key)) + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.new(prk, info + b"\x01", hash_name).digest()[: len(key)]


def tls_psk(configured, hash_number, hostnqn, subnqn, version, compat=False):
    """The PSK identity and the TLS PSK of a configured PSK. `version` is that of the identity, 0 or 1."""
    if hash_number == 0:
        retained, hash_number = configured, {32: 1, 48: 2}[len(configured)]
    else:
        retained = _expand_label(HASHES[hash_number], configured, b"HostNQN", hostnqn.encode(), compat)
    name = HASHES[hash_number]
    identity = f"NVMe{version}R{hash_number:02} {hostnqn} {subnqn}"
    context = identity
    if version == 1:
        text = f"{hostnqn} {subnqn} NVMe-over-Fabrics".encode()
        digest = base64.b64encode(hmac.new(retained, text, name).digest()).decode()
        identity, context = f"{identity} {digest}", f"{hash_number:02} {digest}"
    return identity, _expand_label(name, retained, b"nvme-tls-psk", context.encode(), compat)


class Tls:
    """TLS and authentication in `guest`. tlshd runs after construction.

    `subnqn` is a subsystem of the guest's nvmet, or the one to which the guest connects.
    """

    def __init__(self, guest, subnqn=NQN):
        self.guest, self._subnqn = guest, subnqn
        self.start_tlshd()
        # nvme of Debian 13 has no such option: it only knows libnvme's own derivation.
        self.compat_only = "--compat" not in guest.sh("nvme check-tls-key --help 2>&1", check=False)

    def start_tlshd(self):
        self.guest.sh(TLSHD)

    def stop_tlshd(self):
        self.guest.sh("kill $(cat tlshd.pid); rm -f tlshd.log")

    def log(self):
        """What tlshd has said since the last call, without what it says each time."""
        return self.guest.sh("grep -vE 'Querying|Parsing|No certif|name resolution|config file' tlshd.log; : >tlshd.log", check=False)

    # Keys

    def clear_keys(self):
        self.guest.sh(f"keyctl clear {KEYRING}")

    def insert(self, configured, hash_number, hostnqn, version=1, compat=False):
        """Has nvme derive the TLS PSK of a configured PSK and put it into the keyring. Returns the key's number."""
        words = [f"--identity={version}", f"--keydata={interchange(configured, hash_number)}", f"--hostnqn={hostnqn}"]
        words += ["--compat"] * (compat and not self.compat_only)
        text = self.guest.sh(f"nvme check-tls-key --insert --subsysnqn={self._subnqn} {' '.join(words)} 2>&1")
        return int(text.split()[-1], 16)

    def insert_psk(self, identity, psk, keyring=KEYRING):
        """Puts a TLS PSK under its identity into a keyring. Returns the key's number."""
        octal = "".join(f"\\{byte:03o}" for byte in psk)
        return int(self.guest.sh(f"printf '{octal}' | keyctl padd psk '{identity}' {keyring}"))

    def other_key(self, identity, psk):
        """Puts a TLS PSK into a keyring that only a host uses: options of `connect` that name it are returned."""
        keyring = int(self.guest.sh("keyctl newring other @u"))
        key = self.insert_psk(identity, psk, keyring)
        # tlshd reads the key without possessing it.
        self.guest.sh(f"keyctl setperm {keyring} 0x3f3f0000; keyctl setperm {key} 0x3f3f0000")
        return f"--keyring={keyring}", f"--tls-key={key}"

    def keys(self):
        """The TLS PSKs in the keyring, by identity."""
        text = self.guest.sh(f"""
            keyctl new_session >/dev/null
            keyctl link {KEYRING} @s
            for key in $(keyctl rlist {KEYRING}); do
                keyctl rdescribe $key
                keyctl pipe $key | hexdump -v -e '1/1 "%02x"'
                echo
            done
        """)
        lines = text.splitlines()
        return {name.split(";", 4)[4]: bytes.fromhex(psk) for name, psk in zip(lines[::2], lines[1::2])}

    # The guest as target

    def set_port(self, port, tls, required=True):
        """Has a port of nvmet take TLS, and nothing else if it is `required`. Ends the port's connections."""
        self.guest.sh(f"""
            set -e
            cd {NVMET}/ports/{port}
            rm subsystems/{self._subnqn}
            echo {"tls1.3" if tls else "none"} >addr_tsas
            echo {("required" if required else "not required") if tls else "not specified"} >addr_treq
            ln -s {NVMET}/subsystems/{self._subnqn} subsystems/{self._subnqn}
        """)

    def allow(self, hostnqn, secret=None, ctrl_secret=None, hash_name="sha256", dhgroup="null"):
        """Allows one host only. With `secret`, it has to authenticate. With `ctrl_secret`, nvmet can authenticate too."""
        self.allow_any(hostnqn)
        self.guest.sh(f"""
            set -e
            cd {NVMET}
            mkdir hosts/{hostnqn}
            echo 0 >subsystems/{self._subnqn}/attr_allow_any_host
            ln -s {NVMET}/hosts/{hostnqn} subsystems/{self._subnqn}/allowed_hosts/{hostnqn}
            cd hosts/{hostnqn}
            [ -z "{secret or ''}" ] || echo "{secret}" >dhchap_key
            [ -z "{ctrl_secret or ''}" ] || echo "{ctrl_secret}" >dhchap_ctrl_key
            [ -z "{secret or ''}" ] || echo "hmac({hash_name})" >dhchap_hash
            [ -z "{secret or ''}" ] || echo {dhgroup} >dhchap_dhgroup
        """, timeout=GROUP_TIMEOUT)  # fmt: skip

    def replace_secret(self, hostnqn, secret):
        """Gives nvmet another secret of an allowed host. Connections stay."""
        self.guest.sh(f'echo "{secret}" >{NVMET}/hosts/{hostnqn}/dhchap_key')

    def allow_any(self, hostnqn):
        """Allows any host again, without authentication."""
        self.guest.sh(f"""
            cd {NVMET}
            rm -f subsystems/{self._subnqn}/allowed_hosts/{hostnqn}
            [ ! -d hosts/{hostnqn} ] || rmdir hosts/{hostnqn}
            echo 1 >subsystems/{self._subnqn}/attr_allow_any_host
        """)

    # The guest as host

    def prepare_group(self, dhgroup):
        """Has the kernel test a group, so that no host waits for the test during a connection."""
        self.guest.sh(f"""
            set -e
            cd {NVMET}/hosts
            mkdir group
            echo {dhgroup} >group/dhchap_dhgroup
            rmdir group
        """, timeout=GROUP_TIMEOUT)  # fmt: skip

    def connect(self, address, port, hostnqn, hostid, *options, must=True):
        """`nvme connect` with further options, such as --tls or --dhchap-secret=SECRET. Returns whether it worked. Fails the test
        if it did not, unless `must` is off."""
        words = [
            *("--transport=tcp", f"--traddr={address}", f"--trsvcid={port}", f"--nqn={self._subnqn}"),
            *(f"--hostnqn={hostnqn}", f"--hostid={hostid}", "--nr-io-queues=2", "--reconnect-delay=1", *options),
        ]
        text = self.guest.sh(f"nvme connect {' '.join(words)} 2>&1; echo $?", timeout=60)
        worked = text.split()[-1] == "0"
        check(worked or not must, f"nvme connect: {text.strip()}")
        return worked

    def disconnect(self):
        self.guest.sh(f"nvme disconnect --nqn={self._subnqn}", timeout=60)
