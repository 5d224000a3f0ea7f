# The devices of a QEMU that is built for its tests: two machines, a vhost-user disk, and the serial ports that
# guest-tests talks through.
CONFIG_Q35=y
CONFIG_I440FX=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VHOST_USER_BLK=y
