# neighbours.sh ROOT PROGRAM ARGUMENT…: with ROOT as the root, and this repository at its own place. Not by
# chroot: the kernel refuses networks of their own to whoever is in one.
set -eu
root="$1"
shift
enter='
root="$1" repository="$2" here="$3"
shift 3
mount --bind "$root" "$root"
for place in proc sys dev; do mount --rbind "/$place" "$root/$place"; done
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$repository" "$root/old"
mount --rbind "$repository" "$root$repository"
cd "$root"
pivot_root . old
umount -l /old
cd "$here"
exec "$@"
'
repository="$(cd "$(dirname "$0")/../.." && pwd)"
exec unshare --mount --propagation private sh -euc "$enter" sh "$root" "$repository" "$PWD" "$@"
