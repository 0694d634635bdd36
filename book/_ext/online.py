"""Where the course is online: the three settings of _config.yml that book/appendix/online.md explains.

book_url: where everybody can read the book. Search engines, the notebooks that learners get and the buttons for
ModelArts use it. repository_url: where the repository is public. On GitHub, every page then has its buttons for the
repository and for reporting an error. binder_ref: what Binder takes from that repository.
"""

import re

from sphinx.errors import ConfigError

ADDRESS = re.compile(r"https://[^\s/]+(?:/[^\s/]+)*")
GITHUB = re.compile(r"https://github\.com/[\w-]+/[\w.-]+")


def _apply(app, config):
    for name in ("book_url", "repository_url"):
        address = config[name]
        if address and not ADDRESS.fullmatch(address):
            raise ConfigError(f"_config.yml: {name} must be an https address without a / at its end, got {address!r}")
    if config.binder_ref and not config.repository_url:
        raise ConfigError("_config.yml: binder_ref needs repository_url, which is empty")
    if config.book_url:
        config.html_baseurl = f"{config.book_url}/"
    if GITHUB.fullmatch(config.repository_url):
        address = config.repository_url.removesuffix(".git")
        buttons = {"repository_url": address, "use_repository_button": True, "use_issues_button": True}
        config.html_theme_options = config.html_theme_options | buttons


def setup(app):
    for name in ("book_url", "repository_url", "binder_ref"):
        app.add_config_value(name, "", "env", [str])
    app.connect("config-inited", _apply, priority=400)  # before the theme reads its options
    return {"parallel_read_safe": True, "parallel_write_safe": True}
