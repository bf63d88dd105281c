//! Finds the Python of the site's Salt installation.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

/// The Python of the option, or what stands in the usual places of a system with this `PATH`. Takes
/// [`MAX_SEARCH`] at most.
///
/// # Errors
/// [`NoPython`], which names the place that was searched.
pub(crate) fn find(option: &PythonBridge, path: Option<&OsStr>) -> Result<PathBuf, NoPython> {
    let end = Instant::now() + MAX_SEARCH;
    match option {
        PythonBridge::Off => Err(NoPython::Off),
        PythonBridge::At(place) => {
            let python =
                python_at(place).ok_or_else(|| NoPython::NoInterpreter(place.to_owned()))?;
            let found = first_with_salt(std::slice::from_ref(&python), end)?;
            found.ok_or(NoPython::NoSalt(python))
        }
        PythonBridge::Auto => first_with_salt(&places(path), end)?.ok_or(NoPython::NoInstallation),
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

/// The first place whose Python has Salt. All are asked at once: one that hangs takes no time from the others.
///
/// # Errors
/// [`NoPython::NoAnswer`] when none has, but one has not answered by `end`.
fn first_with_salt(places: &[PathBuf], end: Instant) -> Result<Option<PathBuf>, NoPython> {
    let mut probes: Vec<Probe<'_>> = places.iter().filter_map(Probe::start).collect();
    loop {
        let mut possible = probes.iter().filter(|probe| probe.has_salt != Some(false));
        match possible.next() {
            None => return Ok(None),
            Some(probe) if probe.has_salt.is_some() => return Ok(Some(probe.place.to_owned())),
            Some(_) if Instant::now() >= end => {
                let other = possible.find(|probe| probe.has_salt.is_some());
                let found = other.map(|probe| probe.place.to_owned());
                return found.map(Some).ok_or(NoPython::NoAnswer);
            }
            Some(_) => wait_for_one(&mut probes, end),
        }
    }
}

/// Waits until one more has answered, or until `end`.
fn wait_for_one(probes: &mut [Probe<'_>], end: Instant) {
    let silent = probes.iter().filter(|probe| probe.has_salt.is_none());
    let mut ends: Vec<PollFd<'_>> = silent
        .map(|probe| PollFd::new(&probe.end, PollFlags::IN))
        .collect();
    let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
    // An interrupted wait is another look.
    let _ = poll(&mut ends, left.as_ref());
    probes.iter_mut().for_each(Probe::look);
}

/// A Python that is asked whether it has Salt.
struct Probe<'a> {
    place: &'a PathBuf,
    child: Child,
    /// Readable once it has ended.
    end: OwnedFd,
    has_salt: Option<bool>,
}

impl<'a> Probe<'a> {
    /// `None` where there is no Python.
    fn start(place: &'a PathBuf) -> Option<Self> {
        let child = Command::new(place)
            .args(["-I", "-c", QUESTION])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.ok()?;
        let Ok(end) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) else {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        };
        Some(Self {
            place,
            child,
            end,
            has_salt: None,
        })
    }

    fn look(&mut self) {
        if self.has_salt.is_none() {
            self.has_salt = match self.child.try_wait() {
                Ok(status) => status.map(|status| status.success()),
                Err(_) => Some(false),
            };
        }
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if self.has_salt.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::install;

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
            let found = find(&PythonBridge::At(top.path().join(place)), None);
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
        let error = find(&PythonBridge::At(python), None).expect_err("it has no Salt");
        assert!(error.to_string().contains("cannot be imported"), "{error}");
        let error = find(&PythonBridge::At(top.path().join("no")), None).expect_err("no such file");
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
    fn hanging_python_hides_no_other_one() {
        let top = tempfile::tempdir().expect("a directory");
        let [hangs, has, has_not] = ["hangs", "has", "has-not"].map(|name| top.path().join(name));
        install(&hangs, "exec sleep 600");
        python(&has, "/bin/true");
        python(&has_not, "/bin/false");
        let search = |places: &[&PathBuf], seconds| {
            let places: Vec<PathBuf> = places.iter().map(|place| (*place).clone()).collect();
            first_with_salt(&places, Instant::now() + Duration::from_secs(seconds))
        };
        // One before it needs no time of it.
        assert_eq!(
            search(&[&has_not, &has, &hangs], 600),
            Ok(Some(has.clone()))
        );
        assert_eq!(search(&[&has_not], 600), Ok(None));
        assert_eq!(search(&[&hangs, &has_not], 1), Err(NoPython::NoAnswer));
        let mut found = Err(NoPython::NoAnswer);
        // A busy machine may not run the other one within the first seconds.
        for seconds in [1, 10, 60] {
            if found.is_err() {
                found = search(&[&hangs, &has_not, &has], seconds);
            }
        }
        assert_eq!(found, Ok(Some(has)));
    }
}
