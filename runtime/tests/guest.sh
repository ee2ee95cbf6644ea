#!/bin/sh
# Runs tests of the container runtime, and of pods' cgroups, on a machine with version 2 of those alone: a guest of
# qemu-system-x86, without KVM unless GUEST_ACCEL=kvm, with the kernel of an unpacked linux-image package.
#
#   apt-get install qemu-system-x86; apt-get download linux-image-...-amd64; dpkg-deb -x linux-image-*.deb KERNEL
#   runtime/tests/guest.sh KERNEL [test filters]
set -eu
cd "$(dirname "$0")/../.."
kernel=${1:?the directory of an unpacked linux-image package}
shift
# Pods with a network of their own need more of the kernel's modules than the guest loads.
[ $# -gt 0 ] || set -- containers:: floods:: measures::changed measures::lists \
    security::a_container security::capabilities security::a_filter security::devices security::no_file \
    volumes::an_images_links volumes::limits volumes::read_only volumes::mounts
command -v qemu-system-x86_64 >/dev/null || { echo "qemu-system-x86 is not installed" >&2; exit 1; }
# It builds the program too.
tests=$(cargo test -q -p runtime --test node --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*node-[^"]*\)".*/\1/p')
agent=$(cargo test -q -p kubelet --lib --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*kubelet-[^"]*\)".*/\1/p')
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/bin" "$root/modules" "$root/etc"

# A program, or a library, at the path that it has here, with the libraries that it wants.
place() {
    target=$root$1
    [ -e "$target" ] && return
    mkdir -p "$(dirname "$target")"
    strip -o "$target" "$1" 2>/dev/null || cp -L "$1" "$target"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")"; cp -L "$library" "$root$library"; }
    done
}
place "$tests"
place "$agent"
place "$PWD/target/debug/tiphys-cri"
place "$(command -v ip)"
place "$(command -v nft)"
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
find "$kernel/lib/modules" -name 'overlay.ko*' -exec cp {} "$root/modules" \;
for module in "$root"/modules/*.xz; do
    [ -e "$module" ] && xz -d "$module"
done
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"

cat > "$root/init" <<'GUEST'
#!/bin/sh
# The first root cannot be changed for another by pivot_root; a copy of it can.
busybox mkdir /root
busybox mount -t tmpfs root /root
for entry in /*; do [ "$entry" = /root ] || busybox cp -a "$entry" /root; done
exec busybox switch_root /root /tests
GUEST
cat > "$root/tests" <<GUEST
#!/bin/sh
export PATH=/bin:/usr/sbin:/usr/bin:/sbin RUST_BACKTRACE=0
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/shm /dev/pts
busybox mount -t tmpfs shm /dev/shm
busybox mount -t tmpfs tmp /tmp
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
for file in /modules/*.ko; do busybox insmod \$file; done
$agent --test-threads=1 cgroups::tests && $tests --test-threads=1 $*
echo "guest: ended with \$?"
busybox poweroff -f
GUEST
chmod +x "$root/init" "$root/tests"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) > "$root.img"
trap 'rm -rf "$root" "$root.img"' EXIT
timeout "${GUEST_SECONDS:-1200}" qemu-system-x86_64 -machine "accel=${GUEST_ACCEL:-tcg}" -cpu max -m 3072 -smp 2 -nographic -no-reboot -monitor none -serial stdio \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$root.img" \
    -append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all" </dev/null | tee "$root/said"
grep -q 'guest: ended with 0' "$root/said"
