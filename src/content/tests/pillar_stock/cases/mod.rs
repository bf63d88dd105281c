//! The trees that are compared, by what they are about.

mod includes;
mod merging;
mod top;
mod values;

/// A tree of pillar files, a configuration, and what a minion asks with.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Lines of the master's configuration; `{top}` is the directory of the case. Without
    /// `pillar_roots` there are `base` and `dev`.
    pub(crate) config: &'static str,
    pub(crate) files: Vec<(&'static str, &'static str)>,
    /// Symlinks and what they point to.
    pub(crate) links: Vec<(&'static str, &'static str)>,
    pub(crate) minion: &'static str,
    pub(crate) grains: &'static str,
    pub(crate) saltenv: Option<&'static str>,
    pub(crate) pillarenv: Option<&'static str>,
    pub(crate) pillar_override: Option<&'static str>,
    pub(crate) ext: Option<&'static str>,
    /// Stock raises an exception, so that the minion gets no answer at all.
    pub(crate) stock_raises: bool,
}

/// Grains that say something for every kind of target.
const GRAINS: &str = r#"{
    "id": "web1", "os": "Debian", "os_family": "Debian", "roles": ["web", "app"], "num_cpus": 4,
    "nested": {"a": {"b": "c"}, "list": [{"x": 1}, {"y": "z"}]}, "empty": "", "flag": true,
    "ipv4": ["127.0.0.1", "10.1.2.3"], "ipv6": ["::1", "fe80::1"], "fqdn": "web1.example.org"
}"#;

/// A case for the minion `web1`.
pub(crate) fn case(name: &'static str) -> Case {
    Case {
        name,
        config: "",
        files: Vec::new(),
        links: Vec::new(),
        minion: "web1",
        grains: GRAINS,
        saltenv: None,
        pillarenv: None,
        pillar_override: None,
        ext: None,
        stock_raises: false,
    }
}

impl Case {
    /// Adds a file.
    pub(crate) fn file(mut self, path: &'static str, text: &'static str) -> Self {
        self.files.push((path, text));
        self
    }

    /// Adds the top file of `base`.
    pub(crate) fn top(self, text: &'static str) -> Self {
        self.file("base/top.sls", text)
    }

    /// Adds a file `base/<name>` where `name` is what the top file gives everybody.
    pub(crate) fn all(self, text: &'static str) -> Self {
        self.top("base: {'*': [all]}\n").file("base/all.sls", text)
    }

    pub(crate) fn link(mut self, path: &'static str, target: &'static str) -> Self {
        self.links.push((path, target));
        self
    }

    pub(crate) fn config(mut self, config: &'static str) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn minion(mut self, minion: &'static str) -> Self {
        self.minion = minion;
        self
    }

    pub(crate) fn saltenv(mut self, saltenv: &'static str) -> Self {
        self.saltenv = Some(saltenv);
        self
    }

    pub(crate) fn pillarenv(mut self, pillarenv: &'static str) -> Self {
        self.pillarenv = Some(pillarenv);
        self
    }

    pub(crate) fn with(mut self, pillar_override: &'static str) -> Self {
        self.pillar_override = Some(pillar_override);
        self
    }

    pub(crate) fn raises(mut self) -> Self {
        self.stock_raises = true;
        self
    }
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = top::cases();
    all.extend(includes::cases());
    all.extend(merging::cases());
    all.extend(values::cases());
    all
}
