#!/bin/sh
# Builds the user-mode kernel of tests: kernel.sh DIR. DIR/linux is then the newest Linux that Debian
# has the sources of for its stable release, with cgroup v2 and v1, PSI, swap, zram and the file
# systems that tests mount, all built in. It has more than one processor since Linux 6.19.
# Exit code 77: it cannot be built here, and the last line of standard error says why.
set -eu
dir=$1
suite=trixie-backports

cannot() {
	echo "$1" >&2
	exit 77
}
for need in gcc:gcc make:make flex:flex bison:bison bc:bc xz:xz-utils; do
	command -v "${need%:*}" >/dev/null || cannot "there is no ${need%:*}: Debian's package ${need#*:} has it"
done
[ "$(uname -m)" = x86_64 ] || cannot "the machine is one of x86_64"
mkdir -p "$dir"
free=$(df --output=avail -B 1M "$dir" | tail -n 1)
[ "$free" -ge 4000 ] || cannot "it takes 4 GB of the disk, ${free} MB are free"
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "Debian" {print $2; exit}')
[ -n "$mirror" ] || cannot "apt knows no mirror of Debian"
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"

# The lists of apt are its own, so that the host's sources stay as they are.
mkdir lists cache
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >sources
export APT_CONFIG="$work/apt.conf"
cat >apt.conf <<-APT
	Dir::Etc::SourceList "$work/sources";
	Dir::Etc::SourceParts "/dev/null";
	Dir::State::Lists "$work/lists";
	Dir::Cache "$work/cache";
	APT::Sandbox::User "root";
APT
apt-get -qq update >&2 || cannot "the lists of $mirror $suite cannot be had"
source=$(apt-cache pkgnames linux-source- | sort -V | tail -n 1)
[ -n "$source" ] || cannot "$mirror $suite has no linux-source"
apt-get -qq download "$source" >&2 || cannot "Debian's package $source cannot be downloaded"
dpkg -x ./*.deb . && tar -xf usr/src/$source.tar.xz
rm -rf usr ./*.deb

# What the default configuration for user-mode Linux has not, and what takes long to compile.
cat >fragment <<-'CONFIG'
	CONFIG_SMP=y
	CONFIG_NR_CPUS=8
	CONFIG_MEMCG=y
	CONFIG_MEMCG_V1=y
	CONFIG_CPUSETS=y
	CONFIG_CPUSETS_V1=y
	CONFIG_CGROUP_PIDS=y
	CONFIG_CFS_BANDWIDTH=y
	CONFIG_BLK_DEV_THROTTLING=y
	CONFIG_PSI=y
	CONFIG_SWAP=y
	CONFIG_ZSMALLOC=y
	CONFIG_ZRAM=y
	CONFIG_LRU_GEN=y
	CONFIG_TMPFS=y
	CONFIG_TMPFS_XATTR=y
	CONFIG_OVERLAY_FS=y
	CONFIG_EXT4_FS=y
	CONFIG_XFS_FS=y
	CONFIG_XFS_QUOTA=y
	CONFIG_QUOTA=y
	CONFIG_BTRFS_FS=y
	CONFIG_FUSE_FS=y
	CONFIG_BLK_DEV_LOOP=y
	CONFIG_DEVTMPFS=y
	CONFIG_NAMESPACES=y
	CONFIG_USER_NS=y
	CONFIG_NET_NS=y
	CONFIG_VETH=y
	CONFIG_IPV6=y
	CONFIG_BPF_SYSCALL=y
	CONFIG_CGROUP_BPF=y
	CONFIG_SECCOMP=y
	CONFIG_SECCOMP_FILTER=y
	CONFIG_CHECKPOINT_RESTORE=y
	CONFIG_TASKSTATS=y
	CONFIG_TASK_DELAY_ACCT=y
	CONFIG_SCHEDSTATS=y
	CONFIG_TASK_XACCT=y
	CONFIG_TASK_IO_ACCOUNTING=y
	CONFIG_POSIX_MQUEUE=y
	CONFIG_FANOTIFY=y
	CONFIG_AUTOFS_FS=y
	CONFIG_MAGIC_SYSRQ=y
	CONFIG_KEYS=y
	CONFIG_SECURITY=y
	CONFIG_SECURITY_NETWORK=y
	CONFIG_DEBUG_INFO_NONE=y
	# CONFIG_MODULES is not set
	# CONFIG_DEBUG_KERNEL is not set
CONFIG
cd $source
quiet() { "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; return 1; }; }
quiet make ARCH=um defconfig
quiet scripts/kconfig/merge_config.sh -m .config ../fragment
quiet make ARCH=um olddefconfig
quiet nice make ARCH=um -j"$(nproc)" linux
strip -o "$dir/linux.new" linux
mv "$dir/linux.new" "$dir/linux"
