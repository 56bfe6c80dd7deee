# Boots systemd as PID 1 of namespaces: boot.sh DIR DEB GROUP. The root is the
# host's under an overlay in memory, with the package DEB installed if there is one; nothing
# outside the namespaces changes. GROUP is a cgroup of the test's own in every hierarchy. Exit
# code 3: the package cannot be installed. Any other: systemd cannot be booted here, and
# the last line says why.
set -eu
dir=$1 deb=$2 group=$3

if [ "${4:-}" != inside ]; then
	# A new group of cpuset has no processors; no test needs it.
	awk '$3 ~ /^cgroup2?$/ && $4 !~ /cpuset/ {print $2}' /proc/self/mounts | while read -r hierarchy; do
		if ! [ -w "$hierarchy/$group/cgroup.procs" ]; then continue; fi
		echo $$ >"$hierarchy/$group/cgroup.procs"
	done
	exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child=KILL --mount-proc \
		sh "$0" "$dir" "$deb" "$group" inside
fi

mount --make-rprivate /
hybrid=$(awk '$3 == "cgroup" && $4 !~ /name=|cpuset/ {n = split($2, p, "/"); print p[n]}' /proc/self/mounts)
mount -t tmpfs -o size=700m tmpfs "$dir"
root=$dir/root
mkdir "$dir/upper" "$dir/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
if [ -n "$hybrid" ]; then
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
	mkdir "$root/sys/fs/cgroup/unified" "$root/sys/fs/cgroup/systemd"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
	mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
	for controller in $hybrid; do
		mkdir "$root/sys/fs/cgroup/$controller"
		mount -t cgroup -o "$controller" cgroup "$root/sys/fs/cgroup/$controller"
	done
else
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
while read -r name major minor; do
	mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<-NODES
	null 1 3
	zero 1 5
	full 1 7
	random 1 8
	urandom 1 9
	tty 5 0
NODES
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
: >"$root/dev/console"

# Whatever the host runs stays out, and what a container's host says of services.
rm -rf "$root/etc/evictd" "$root/var/lib/evictd" "$root/usr/sbin/policy-rc.d" "$root/var/lib/man-db/auto-update"
if [ -n "$deb" ]; then
	cp "$deb" "$root/root/evictd.deb"
	chroot "$root" dpkg --install --force-depends --force-unsafe-io /root/evictd.deb || exit 3
fi
cat >"$root/etc/systemd/system/evictd-test.target" <<-TARGET
	[Unit]
	Description=The package and a journal
	Wants=systemd-journald.service evictd.service evictd.socket evictd-agent.socket
	AllowIsolate=yes
TARGET
: >"$root/etc/machine-id"
# Not chroot: a process in one may not make user namespaces.
cd "$root"
mkdir -p mnt
pivot_root . mnt
# Shared, as on a machine: systemd mounts credentials in a namespace of their own.
exec chroot . sh -c 'umount -l /mnt && mount --make-rshared / && exec env -i container=x PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=evictd-test.target --log-target=journal-or-kmsg'
