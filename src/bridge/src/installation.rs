//! Finds the Python of the site's Salt installation.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use saltern_config::PythonBridge;
use tokio::time::Instant;

use crate::NoPython;

/// The Python of Salt's own packages.
const PACKAGED: &str = "/opt/saltstack/salt/bin/python3";
/// The system's Python.
const SYSTEM: &str = "/usr/bin/python3";
/// Programs of Salt whose first line names their Python.
const PROGRAMS: [&str; 2] = ["salt-call", "salt-master"];
/// The longest first line that is read.
const MAX_LINE_BYTES: u64 = 512;
/// How long a search may take: a Python is not passed over because the machine is busy.
pub(crate) const MAX_SEARCH: Duration = Duration::from_secs(60);

/// Succeeds in a Python that has Salt; finding it is enough.
const QUESTION: &str =
    "import importlib.util as u; raise SystemExit(u.find_spec('salt.config') is None)";

/// The Python of the option, or what stands in the usual places of a system with this `PATH`.
/// After the deadline, or [`MAX_SEARCH`] if that is sooner, there is none.
///
/// # Errors
/// [`NoPython`], which names the place that was searched.
pub(crate) fn find(
    option: &PythonBridge,
    path: Option<&OsStr>,
    deadline: Instant,
) -> Result<PathBuf, NoPython> {
    let end = Instant::now() + MAX_SEARCH;
    match option {
        PythonBridge::Off => Err(NoPython::Off),
        PythonBridge::At(place) => {
            let python =
                python_at(place).ok_or_else(|| NoPython::NoInterpreter(place.to_owned()))?;
            if has_salt(&python, end.min(deadline)) {
                Ok(python)
            } else {
                Err(NoPython::NoSalt(python))
            }
        }
        PythonBridge::Auto => {
            let places = places(path);
            let found = first_with_salt(&places, end, deadline);
            found.cloned().ok_or(NoPython::NoInstallation)
        }
    }
}

/// The usual places, each once. Links are not followed: the Python of a virtual environment is one.
fn places(path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(PACKAGED)];
    for place in by_programs(path).into_iter().chain([SYSTEM.into()]) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The first place whose Python has Salt. One that hangs leaves the others their share of the time
/// until `end`, unless that is after the deadline.
fn first_with_salt(places: &[PathBuf], end: Instant, deadline: Instant) -> Option<&PathBuf> {
    let mut rest = u32::try_from(places.len()).unwrap_or(u32::MAX);
    places.iter().find(|place| {
        let now = Instant::now();
        let share = end.saturating_duration_since(now) / rest.max(1);
        rest = rest.saturating_sub(1);
        has_salt(place, deadline.min(now + share))
    })
}

/// The Python itself, or that of an installation or a virtual environment.
fn python_at(place: &Path) -> Option<PathBuf> {
    if place.is_file() {
        return Some(place.to_owned());
    }
    let below = ["bin/python3", "salt/bin/python3"];
    let below = below.iter().map(|name| place.join(name));
    below.into_iter().find(|path| path.is_file())
}

/// The interpreters that the first lines of Salt's programs name.
fn by_programs(path: Option<&OsStr>) -> Vec<PathBuf> {
    let directories = path.into_iter().flat_map(std::env::split_paths);
    let programs = directories.flat_map(|directory| PROGRAMS.map(|name| directory.join(name)));
    programs
        .filter_map(|program| interpreter_of(&program))
        .collect()
}

fn interpreter_of(program: &Path) -> Option<PathBuf> {
    let mut line = String::new();
    let file = File::open(program).ok()?;
    BufReader::new(file.take(MAX_LINE_BYTES))
        .read_line(&mut line)
        .ok()?;
    let interpreter = line.strip_prefix("#!")?.split_whitespace().next()?;
    let name = Path::new(interpreter).file_name()?.to_str()?;
    name.starts_with("python")
        .then(|| PathBuf::from(interpreter))
}

fn has_salt(python: &Path, deadline: Instant) -> bool {
    if Instant::now() >= deadline {
        return false;
    }
    let child = Command::new(python)
        .args(["-I", "-c", QUESTION])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).is_ok_and(|end| {
        let left = deadline.saturating_duration_since(Instant::now());
        Timespec::try_from(left).is_ok_and(|left| {
            poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&left)).is_ok_and(|n| n > 0)
        })
    });
    if !ended {
        let _ = child.kill();
    }
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn find(option: &PythonBridge) -> Result<PathBuf, NoPython> {
        super::find(option, None, Instant::now() + MAX_SEARCH)
    }

    /// A fake Python that ignores its program. A link, because a program that was written
    /// here cannot be started ("text file busy") while a child of another test has it open.
    fn python(path: &Path, does: &str) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        symlink(does, path).expect("it can be written");
    }

    #[test]
    fn an_installation_is_found_by_its_path_or_by_its_programs() {
        let top = tempfile::tempdir().expect("a directory");
        let python = top.path().join("salt/bin/python3");
        self::python(&python, "/bin/true");
        for place in ["", "salt", "salt/bin/python3"] {
            let found = find(&PythonBridge::At(top.path().join(place)));
            assert_eq!(found.as_ref(), Ok(&python), "{place}");
        }
        let script = format!("#!{} -I\nimport salt\n", python.display());
        fs::create_dir(top.path().join("bin")).expect("it can be made");
        fs::write(top.path().join("bin/salt-call"), &script).expect("it can be written");
        let found = by_programs(Some(top.path().join("bin").as_os_str()));
        assert_eq!(found, [python]);
    }

    #[test]
    fn python_without_salt_is_refused_by_its_path() {
        let top = tempfile::tempdir().expect("a directory");
        let python = top.path().join("python3");
        self::python(&python, "/bin/false");
        let error = find(&PythonBridge::At(python)).expect_err("it has no Salt");
        assert!(error.to_string().contains("cannot be imported"), "{error}");
        let error = find(&PythonBridge::At(top.path().join("no"))).expect_err("no such file");
        assert!(error.to_string().contains("there is no Python"), "{error}");
    }

    #[test]
    fn python_named_by_several_programs_is_one_place() {
        let top = tempfile::tempdir().expect("a directory");
        let directories = ["one", "two"].map(|name| top.path().join(name));
        for directory in &directories {
            fs::create_dir(directory).expect("it can be made");
            for (name, python) in [("salt-call", "/venv/bin/python3"), ("salt-master", SYSTEM)] {
                let script = format!("#!{python}\nimport salt\n");
                fs::write(directory.join(name), script).expect("it can be written");
            }
        }
        let path = std::env::join_paths(&directories).expect("a path");
        let expected = [PACKAGED, "/venv/bin/python3", SYSTEM];
        assert_eq!(places(Some(&path)), expected.map(PathBuf::from));
    }

    #[test]
    fn hanging_python_leaves_time_for_the_next() {
        let top = tempfile::tempdir().expect("a directory");
        let places = ["hangs", "has"].map(|name| top.path().join(name));
        let [hangs, has] = &places;
        let draft = top.path().join("draft");
        fs::write(&draft, "#!/bin/sh\nexec sleep 600\n").expect("it can be written");
        let mut install = Command::new("install");
        let installed = install.args(["-m", "755"]).args([&draft, hangs]).status();
        assert!(installed.expect("it can be run").success());
        python(has, "/bin/true");
        let end = Instant::now() + Duration::from_secs(10);
        assert_eq!(first_with_salt(&places, end, end), Some(has));
    }
}
