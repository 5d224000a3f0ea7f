#!/bin/bash
# Installs the Debian packages a part of the project needs, and says what it installs.
#
#   scripts/deps.sh SET...      SET: build, count, guest, unit, uml, faults, lab, qemu, venv, picture, lint, fuzz, deb, dist, package
#
# A set that is complete costs nothing and needs neither root nor network. Packages are installed as root, or
# through sudo. A Rust toolchain is never installed: the script asks for rustup.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
die() { echo "deps: $*" >&2; exit 1; }

# Packages of a set: name, or name:program when the program may come from elsewhere.
packages() {
    case $1 in
        build) echo gcc:cc libc6-dev make:make ca-certificates curl:curl libssl-dev pkg-config:pkg-config ;;
        count) echo valgrind:valgrind ;;
        guest) echo qemu-system-x86:qemu-system-x86_64 qemu-system-common:qemu-storage-daemon fio:fio \
            busybox-static cpio:cpio kmod lz4:lz4 xz-utils:unxz util-linux python3:python3 iproute2:tc ;;
        unit) echo gcc:gcc binutils:objcopy make:make qemu-system-x86:qemu-system-x86_64 \
            qemu-system-common:qemu-storage-daemon util-linux python3:python3 ;;
        uml) echo user-mode-linux:linux.uml busybox-static fio:fio gcc:cc libc6-dev util-linux python3:python3 ;;
        faults) echo nftables:nft iproute2:ip ;;
        lab) echo nftables:nft iproute2:ip procps:sysctl util-linux:nsenter python3:python3 ;;
        qemu) echo gcc:gcc libc6-dev make:make dpkg-dev:dpkg-source patch:patch meson:meson ninja-build:ninja \
            pkg-config:pkg-config python3:python3 libglib2.0-dev libpixman-1-dev libfdt-dev ;;
        venv) echo python3:python3 python3-venv ;;
        picture) echo tmux:tmux ;;
        fuzz) echo g++:c++ ;;
        deb) echo binutils:objcopy dpkg-dev:dpkg-shlibdeps xz-utils:xz ;;
        dist) echo mandoc:mandoc man-db:man groff:groff zsh:zsh fish:fish libvirt-clients:virt-xml-validate \
            libxml2-utils:xmllint util-linux python3:python3 ;;
        package) echo systemd-container:systemd-nspawn debootstrap:debootstrap dpkg-dev:dpkg-deb util-linux:nsenter python3:python3 ;;
        lint) echo shellcheck:shellcheck pyflakes3:pyflakes3 python3-markdown-it patch:patch ;;
        *) usage ;;
    esac
}

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# Of dpkg's many lines, one a package.
install_now() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" |
        sed -u -n '/^Setting up/p' >&2
}

refresh_lists() {
    echo "deps: refreshing the package lists (apt-get update)" >&2
    "${as_root[@]}" apt-get update -qq >&2
}

# The two functions above see `missing` and `as_root`.
install_missing() {
    local entry package program missing=()
    for entry in "$@"; do
        package=${entry%%:*} program=${entry#*:}
        is_installed "$package" && continue
        [[ $entry == *:* ]] && command -v "$program" >/dev/null && continue
        missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "needs ${missing[*]}; this is not a Debian system, install them by hand"

    local as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || die "needs ${missing[*]}: run as root, or install sudo"
        as_root=(sudo)
    fi
    echo "deps: installing ${missing[*]} (apt-get, without recommended packages)" >&2
    # The package lists are absent on a fresh machine, and out of date on an old one.
    apt-get install -s --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || refresh_lists
    install_now || { refresh_lists && install_now; } || die "could not install ${missing[*]}"
}

# The oldest Rust that builds the workspace is the one its manifest names.
require_rust() {
    local wanted found=
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml")
    [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]] && PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    if command -v cargo >/dev/null; then
        found=$(cd "$root" && cargo --version 2>/dev/null | awk '{print $2}') || true
        [[ -n $found && $(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1) == "$wanted" ]] && return 0
    fi
    die "needs Rust $wanted or later (found: ${found:-none}). Install it with rustup, https://rustup.rs:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- --profile minimal -c clippy -c rustfmt
then open a new shell (or: . \"\$HOME/.cargo/env\") and try again."
}

(($#)) || usage
for set in "$@"; do
    list=$(packages "$set")
    # shellcheck disable=SC2086  # one word a package
    install_missing $list
    [[ $set == build ]] && require_rust
    if [[ $set == deb ]]; then
        require_rust
        "$root/scripts/tool" cargo-cyclonedx >/dev/null
        "$root/scripts/tool" cargo-deb >/dev/null
    fi
done
exit 0
