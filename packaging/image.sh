#!/usr/bin/env bash
# Puts the Containerfile and the package that it installs into target/image, and builds the image
# where podman, or docker with buildx and a daemon, is there.
#
#   packaging/image.sh BINARY
set -euo pipefail

die() { echo "image: $*" >&2; exit 1; }

[ $# = 1 ] || die "say BINARY"
binary=$(realpath "$1")
cd "$(dirname "$0")/.."
context=target/image
mkdir -p "$context"
packages=$(packaging/deb/build.sh "$binary" "$context")
mv "${packages%%$'\n'*}" "$context/saltern.deb"
cp packaging/Containerfile "$context/Containerfile"
echo "$context/Containerfile"

# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
arguments=(--build-arg "SUITE=$suite" -t saltern -f "$context/Containerfile" "$context")
if podman info >/dev/null 2>&1; then
    # The other format has no health checks.
    exec podman build --format docker "${arguments[@]}"
elif docker info >/dev/null 2>&1; then
    # The builder that docker has in itself cannot mount the package.
    docker buildx version >/dev/null 2>&1 ||
        die "docker has no buildx, which the Containerfile needs: install docker-buildx, or podman"
    exec docker build "${arguments[@]}"
fi
echo "image: neither podman nor a docker whose daemon answers is here, so that no image was built. By" \
    "hand: docker build ${arguments[*]}" >&2
