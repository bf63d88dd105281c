//! Support of an option by this program.

/// Effect of a value that differs from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done as asked.
    Honoured,
    /// The master starts and warns: this part is not built yet.
    NotBuilt(NotBuilt),
    /// The master does not start: doing less than asked would be dangerous or plainly wrong.
    Refused(&'static str),
    /// Nothing is lost: the text says why the value does not matter here.
    NoEffect(&'static str),
    /// Nothing is lost: the value is handed to what runs in Python.
    InPython,
}

impl Status {
    /// The status in a word, as reports and the reference have it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Honoured => "honoured",
            Status::NotBuilt(_) => "not honoured yet",
            Status::Refused(_) => "refused",
            Status::NoEffect(_) => "no effect",
            Status::InPython => "handed on",
        }
    }
}

/// The parts of a Salt master that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBuilt {
    /// Serving files to minions.
    Files,
    /// Git, Mercurial, Subversion and S3 as sources of files and pillars.
    Remotes,
    /// Pillars.
    Pillar,
    /// Rendering and states on the master.
    States,
    /// Range servers, and minions of other masters.
    Targeting,
    /// Permissions of users and of external authentication.
    Permissions,
    /// Thorium and processes of the site.
    Automation,
    /// Returners for events and jobs.
    Returners,
    /// salt-ssh.
    Ssh,
    /// Runners and wheels.
    Runners,
    /// Statistics and telemetry.
    Insight,
}

impl NotBuilt {
    /// The part as words for "not honoured yet (…)".
    pub fn part(self) -> &'static str {
        match self {
            NotBuilt::Files => "this part of the file server",
            NotBuilt::Remotes => "remote sources of files and pillars",
            NotBuilt::Pillar => "pillar",
            NotBuilt::States => "rendering on the master",
            NotBuilt::Targeting => "this way to find minions",
            NotBuilt::Permissions => "access control beyond the user keys",
            NotBuilt::Automation => "thorium and ext_processes",
            NotBuilt::Returners => "returners",
            NotBuilt::Ssh => "salt-ssh",
            NotBuilt::Runners => "runners on the master",
            NotBuilt::Insight => "this kind of events and statistics",
        }
    }
}
