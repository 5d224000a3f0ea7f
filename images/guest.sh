#!/bin/sh
# What every guest's init begins with (in the guest: /lib/guest.sh): mounts, modules, and the control port, which is then
# open as file descriptor 3. Everything for human eyes goes to the serial console; what init says there starts with "guest:".
export PATH=/bin HOME=/ TMPDIR=/tmp

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1

case " $(cat /proc/cmdline) " in
    *" guest.probe "*)
        echo "guest: probe ok"
        poweroff -f
        ;;
esac

echo "guest: Linux $(uname -r) is up"
# In order of dependency, see images/build.
while read -r module parameters; do
    # shellcheck disable=SC2086  # one word a parameter
    insmod "/lib/modules/$module" $parameters || echo "guest: cannot load $module"
done </lib/modules/order

uptime_now() { cut -d ' ' -f 1 /proc/uptime; }

send_file() { # FILE, HEADER WORDS...
    file=$1
    shift
    { echo "$* $(stat -c %s "$file")" && cat "$file"; } >&3
}

# Devices are there a moment after the module's probe function has returned, not earlier.
control=
tries=0
while [ -z "$control" ] && [ $tries -lt 200 ]; do
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name" 2>/dev/null)" = control ] && control=/dev/${port##*/}
    done
    [ -n "$control" ] || usleep 20000
    tries=$((tries + 1))
done
if [ -z "$control" ]; then
    echo "guest: no virtio-serial port named control"
    poweroff -f
fi
exec 3<>"$control"
cd /tmp || exit 1
