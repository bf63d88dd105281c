#!/usr/bin/env bash
# Puts the Containerfile and the package that it installs into target/image, and builds the image
# where podman, or docker with a daemon, is there.
#
#   packaging/image.sh BINARY
set -euo pipefail

[ $# = 1 ] || { echo "image: say BINARY" >&2; exit 1; }
binary=$(realpath "$1")
cd "$(dirname "$0")/.."
context=target/image
mkdir -p "$context"
package=$(packaging/deb/build.sh "$binary" "$context")
mv "$package" "$context/saltern.deb"
cp packaging/Containerfile "$context/Containerfile"
echo "$context/Containerfile"

# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
for tool in podman docker; do
    if command -v "$tool" >/dev/null && "$tool" info >/dev/null 2>&1; then
        exec "$tool" build --build-arg "SUITE=$suite" -t saltern -f "$context/Containerfile" "$context"
    fi
done
echo "image: neither podman nor a running docker is here; only the Containerfile was written" >&2
