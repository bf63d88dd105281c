#!/usr/bin/env python3
"""Renderings a second of stock: `PYTHON_OF_SALT render_rate.py [SECONDS]`. See `render_rate.rs`."""

import json
import logging
import pathlib
import sys
import tempfile
import time

logging.disable(logging.CRITICAL)

import salt.config
import salt.pillar
import salt.template

HERE = pathlib.Path(__file__).parent


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    grains = json.loads((HERE / "render_rate.json").read_text())
    with tempfile.TemporaryDirectory() as root:
        path = pathlib.Path(root, "pillar/site/web.sls")
        path.parent.mkdir(parents=True)
        path.write_text((HERE / "render_rate.sls").read_text())
        opts = salt.config.master_config(None)
        opts.update(
            {"root_dir": root, "cachedir": root + "/cache", "pki_dir": root + "/pki", "sock_dir": root + "/sock",
             "extension_modules": root + "/ext", "pillar_roots": {"base": [root + "/pillar"]}}
        )
        pillar = salt.pillar.Pillar(opts, grains, "web1.example.com", "base")

        def render():
            return salt.template.compile_template(
                str(path), pillar.rend, opts["renderer"], opts["renderer_blacklist"], opts["renderer_whitelist"],
                saltenv="base", sls="site.web", _pillar_rend=True,
            )

        keys = len(render())
        count, start = 0, time.monotonic()
        while time.monotonic() - start < seconds:
            render()
            count += 1
        rate = count / (time.monotonic() - start)
    print(f"{rate:.0f} renderings/s of {keys} keys, {1e6 / rate:.1f} µs each")


if __name__ == "__main__":
    main()
