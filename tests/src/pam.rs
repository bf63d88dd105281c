//! A PAM service with test users, installed for the duration of a test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::release::Release;

/// A service of the system's PAM that exists for this test only: it asks a program that knows `pia`,
/// `locked` and `waits`. It lets `pia` in, and `waits` once the file [`PamService::released`] exists. PAM looks for its services in one directory, so this takes
/// root, as the containers of CI are run by.
pub struct PamService {
    /// Value of the option `auth.pam.service`.
    pub name: String,
    file: PathBuf,
    program: tempfile::TempDir,
}

impl PamService {
    /// Makes the service.
    ///
    /// # Errors
    /// When the tests are not run by root.
    pub fn install() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let program = dir.path().join("check");
        std::fs::write(
            &program,
            "#!/bin/sh\n\
             if [ $PAM_USER = waits ]; then\n\
             until [ -e \"$0.released\" ]; do sleep 0.1; done\n\
             fi\n\
             case \"$PAM_TYPE/$PAM_USER\" in\n\
             auth/pia|auth/locked|auth/waits) [ \"$(tr -d '\\0')\" = secret ] ;;\n\
             account/pia|account/waits) exit 0 ;;\n\
             *) exit 1 ;;\n\
             esac\n",
        )?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let unique = dir.path().file_name().and_then(|name| name.to_str());
        let name = format!("saltern-test{}", unique.context("a name")?.to_lowercase());
        let file = Path::new("/etc/pam.d").join(&name);
        let program = program.display();
        std::fs::write(
            &file,
            format!(
                "auth required pam_exec.so quiet expose_authtok {program}\n\
                 account required pam_exec.so quiet {program}\n"
            ),
        )
        .context(
            "this test makes a service of the system's PAM, which takes root and \"/etc/pam.d\"",
        )?;
        Ok(Self {
            name,
            file,
            program: dir,
        })
    }
}

impl PamService {
    /// The file for which the log-ins of `waits` wait.
    #[must_use]
    pub fn released(&self) -> PathBuf {
        self.program.path().join("check.released")
    }

    /// Removes it again.
    ///
    /// # Errors
    /// When it stays behind.
    pub fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.file)
            .with_context(|| format!("\"{}\" stays behind", self.file.display()))
    }
}

impl Drop for PamService {
    fn drop(&mut self) {
        // Of a test that failed before it came to that.
        if self.file.exists() {
            let _ = self.remove();
        }
    }
}

/// A program that runs stock's Python with its packages: stock's master follows links, and would
/// start the Python that the virtual environment was made from.
pub fn python_for_pam(root: &str, release: Release) -> String {
    let path = format!("{root}/python");
    let python = release.program("python");
    let text = format!("#!/bin/sh\nexec {} \"$@\"\n", python.display());
    std::fs::write(&path, text).expect("the site has a directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("a file of our own");
    path
}
