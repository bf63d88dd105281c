//! A view of the file server with some of its backends, for the functions `fileserver.*` of the
//! master (`salt/fileserver/__init__.py`, where they take the argument `back`).

use std::collections::BTreeSet;

use saltern_wire::msgpack::Value;

use super::error::FilesError;
use super::listing::Purpose;
use super::{Backend, FileServer, Form, minionfs, roots};

/// Some of the backends, in the order in which they were named.
pub struct Chosen<'a> {
    server: &'a FileServer,
    backends: Vec<&'a Backend>,
}

impl Backend {
    /// The names under which the backend can be asked for.
    fn names(&self) -> &'static [&'static str] {
        match self {
            Backend::Roots(_) => &[roots::NAME],
            Backend::MinionFs(_) => &[minionfs::NAME, "minion"],
            Backend::Git(_) => &["gitfs", "git"],
        }
    }
}

impl FileServer {
    /// The backends of these names, all if there are none. If every name begins with `-`, all but
    /// those. A name that no backend has counts for nothing.
    pub fn chosen(&self, names: &[String]) -> Chosen<'_> {
        let is_named = |backend: &Backend, name: &str| backend.names().contains(&name);
        let without: Option<Vec<&str>> = names.iter().map(|it| it.strip_prefix('-')).collect();
        let backends = match without {
            Some(without) => {
                let is_left = |it: &&Backend| !without.iter().any(|name| is_named(it, name));
                self.backends.iter().filter(is_left).collect()
            }
            None => {
                let of_name = |name| self.backends.iter().find(|it| is_named(it, name));
                names.iter().filter_map(|name| of_name(name)).collect()
            }
        };
        Chosen {
            server: self,
            backends,
        }
    }
}

impl Chosen<'_> {
    /// The first name of each backend, in their order.
    pub fn names(&self) -> Vec<&'static str> {
        let names = self.backends.iter().map(|backend| backend.names());
        names.filter_map(|names| names.first().copied()).collect()
    }

    /// The environments, sorted.
    pub fn environments(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for backend in &self.backends {
            backend.add_environments(&mut names);
        }
        names.into_iter().collect()
    }

    /// The files of an environment, sorted.
    ///
    /// # Errors
    /// [`FilesError::TooManyEntries`] and [`FilesError::TooDeep`].
    pub fn files(&self, saltenv: &str) -> Result<Value, FilesError> {
        self.listed(saltenv, Form::Files)
    }

    /// The directories of an environment, sorted.
    ///
    /// # Errors
    /// As [`Chosen::files`].
    pub fn directories(&self, saltenv: &str) -> Result<Value, FilesError> {
        self.listed(saltenv, Form::Directories)
    }

    /// The directories without an entry, sorted.
    ///
    /// # Errors
    /// As [`Chosen::files`].
    pub fn empty_directories(&self, saltenv: &str) -> Result<Value, FilesError> {
        self.listed(saltenv, Form::EmptyDirectories)
    }

    /// `{link: target}`, sorted; of several backends with links, the last one answers.
    ///
    /// # Errors
    /// As [`Chosen::files`].
    pub fn links(&self, saltenv: &str) -> Result<Value, FilesError> {
        let mut entries = Vec::new();
        for backend in &self.backends {
            let now = self.server.clock.now();
            let listing = match backend {
                Backend::Roots(roots) => roots.listing(saltenv, now, Purpose::Answer)?,
                Backend::Git(gitfs) => gitfs.links(saltenv)?,
                Backend::MinionFs(_) => continue,
            };
            let links = listing.links.iter();
            entries = links
                .map(|(link, target)| (Value::from(link), Value::from(target)))
                .collect();
        }
        Ok(Value::Map(entries))
    }

    /// Brings everything up to date that is not looked at with every question: fetches the git
    /// remotes, one after the other, whether or not their time has come.
    pub fn update(&self) {
        for backend in &self.backends {
            if let Backend::Git(gitfs) = backend {
                gitfs.fetch_now();
            }
        }
    }

    /// Forgets the lists of these environments, of all for `None`; gives the environments
    /// of which a backend had any, with the name of the backend.
    pub fn forget_lists(
        &self,
        environments: Option<&[String]>,
    ) -> Vec<(&'static str, Vec<String>)> {
        let mut forgotten = Vec::new();
        for backend in &self.backends {
            if let Backend::Roots(roots) = backend {
                let names = roots.forget_lists(environments);
                if !names.is_empty() {
                    forgotten.push((roots::NAME, names));
                }
            }
        }
        forgotten
    }

    fn listed(&self, saltenv: &str, form: Form) -> Result<Value, FilesError> {
        let mut merged = BTreeSet::new();
        for backend in &self.backends {
            backend.add_listed(saltenv, "", form, self.server.clock.now(), &mut merged)?;
        }
        Ok(Value::Array(
            merged.iter().map(|path| Value::from(&**path)).collect(),
        ))
    }
}
