#!/bin/sh
# Makes what test/vm boots: rootfs.sh DIR. DIR/disk is then a root filesystem of this
# Debian with systemd, DIR/kernel its kernel for clouds, which has nvme and ext4
# built in and so needs no initrd. Exit code 77: it cannot be made here, and the last
# line of standard error says why.
set -eu
dir=$1

cannot() {
	echo "$1" >&2
	exit 77
}
need() { command -v "$1" >/dev/null || cannot "there is no $1: Debian's package $2 has it"; }

[ "$(uname -m)" = x86_64 ] || cannot "the machine is one of x86_64"
[ "$(id -u)" = 0 ] || cannot "a root filesystem is made by root"
# Of two that run at once the second waits, and takes what the first has made. What debootstrap
# mounts ends with the namespace, also where this is killed.
[ "${2:-}" = inside ] || exec flock "$dir.lock" unshare --mount sh "$0" "$dir" inside
[ ! -d "$dir" ] || exit 0
need debootstrap debootstrap
need mke2fs e2fsprogs
free=$(df --output=avail -B 1M "$(dirname "$dir")" | tail -n 1)
[ "$free" -ge 3000 ] || cannot "it takes 3 GB of the disk, ${free} MB are free"

suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/ *Depends: //p')
if [ -z "$kernel" ]; then
	apt-get update >&2 || cannot "the lists of Debian's packages cannot be had"
	kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: //p')
fi
[ -n "$kernel" ] || cannot "Debian has no linux-image-cloud-amd64 for $suite"
mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
	awk -v suite="$suite" '$1 == "Debian" && $2 == suite {print $3; exit}')
[ -n "$mirror" ] || cannot "apt knows no mirror of $suite"

rm -rf "$dir.new"
mkdir -p "$dir.new/kernel-package"
cd "$dir.new"
trap 'rm -rf "$dir.new"' EXIT
root=$dir.new/root
(cd kernel-package && apt-get download "$kernel" && dpkg -x ./*.deb .) >&2 || cannot "$kernel cannot be downloaded"
debootstrap --variant=minbase \
	--include=systemd,systemd-sysv,dbus,procps,kmod,udev,mount,e2fsprogs,init-system-helpers,earlyoom,systemd-oomd,runc \
	"$suite" root "$mirror" >&2 || cannot "debootstrap fails with $mirror"

# Of the modules those of what tests mount.
modules=$(echo kernel-package/lib/modules/*)
version=${modules##*/}
for module in drivers/block/loop fs/overlayfs/overlay fs/quota/quota_tree fs/quota/quota_v2; do
	install -D -m 0644 -t "root/usr/lib/modules/$version/kernel/${module%/*}" "$modules/kernel/$module.ko"
done
cp "$modules"/modules.order "$modules"/modules.builtin* "root/usr/lib/modules/$version"
chroot root depmod -a "$version"

cat >root/etc/fstab <<-FSTAB
	/dev/nvme0n1 / ext4 rw,noatime 0 0
	/dev/nvme1n1 /payload ext4 ro 0 0
FSTAB
mkdir root/payload

# What systemd waits for has as long as an emulated machine takes that has a tenth of a processor.
mkdir -p root/etc/systemd/system.conf.d root/etc/systemd/system/evictd.service.d root/etc/systemd/system/systemd-journald.service.d
cat >root/etc/systemd/system.conf.d/patient.conf <<-MANAGER
	[Manager]
	DefaultTimeoutStartSec=infinity
	DefaultDeviceTimeoutSec=infinity
MANAGER
cat >root/etc/systemd/system/evictd.service.d/patient.conf <<-SERVICE
	[Service]
	TimeoutStartSec=5min
	TimeoutStopSec=5min
	WatchdogSec=5min
SERVICE
cat >root/etc/systemd/system/systemd-journald.service.d/patient.conf <<-SERVICE
	[Service]
	WatchdogSec=0
SERVICE
: >root/etc/machine-id
: >root/etc/resolv.conf
echo machine >root/etc/hostname
echo '127.0.0.1 localhost machine' >root/etc/hosts

# What the payload writes goes to the second serial line, and the machine ends with it.
cat >root/etc/systemd/system/payload.service <<-UNIT
	[Unit]
	RequiresMountsFor=/payload
	After=basic.target
	[Service]
	Type=oneshot
	OOMPolicy=continue
	OOMScoreAdjust=-900
	TimeoutStartSec=infinity
	StandardOutput=tty
	StandardError=tty
	TTYPath=/dev/ttyS1
	ExecStart=/bin/sh /payload/run
	ExecStopPost=/sbin/poweroff -ff
	[Install]
	WantedBy=multi-user.target
UNIT
chroot root systemctl --quiet enable payload.service
chroot root systemctl --quiet disable earlyoom.service systemd-oomd.service getty@tty1.service remote-fs.target \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
chroot root systemctl --quiet mask serial-getty@ttyS0.service systemd-update-utmp.service
rm -rf root/usr/share/doc root/usr/share/locale root/usr/share/man root/var/cache/apt root/var/lib/apt/lists
mkdir -p root/var/cache/apt/archives/partial root/var/lib/apt/lists/partial

mke2fs -q -t ext4 -m 0 -J size=16 -d root disk 1500M
mv kernel-package/boot/vmlinuz-* kernel
rm -rf root kernel-package
mv "$dir.new" "$dir"
