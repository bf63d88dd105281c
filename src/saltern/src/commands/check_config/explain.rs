//! `saltern check-config --explain OPTION`: what there is to know of an option, from the tables by
//! which the check decides.

use saltern_base::exit::Exit;
use saltern_config::options::{self, ConfigOption, Reload, Status};

use super::super::{complain, say};

/// 0 when every name is that of an option; 64 when one is not.
pub(super) fn run(names: &[String]) -> Exit {
    let mut exit = Exit::Ok;
    for name in names {
        match describe(name) {
            Some(text) => say(&text),
            None => {
                let nearest = options::nearest(name);
                let nearest = nearest.map(|name| format!("; did you mean \"{name}\"?"));
                complain(&format!(
                    "there is no option \"{name}\"{}",
                    nearest.unwrap_or_default()
                ));
                exit = Exit::Usage;
            }
        }
    }
    exit
}

/// The explanation of an option; `None` where no option has the name.
fn describe(name: &str) -> Option<String> {
    let option = options::find(name)?;
    let (status, meaning) = status(option);
    let doc = match option.doc {
        "" => String::new(),
        doc => format!("  {doc}\n"),
    };
    let of_stock = match option.is_ours() {
        true => String::new(),
        false => format!("  Salt: {}\n", option.versions_text()),
    };
    let kinds: Vec<&str> = option.types.iter().map(|kind| kind.name()).collect();
    let kinds = match kinds.is_empty() {
        true => String::new(),
        false => format!("  value: {}\n", kinds.join(" or ")),
    };
    let reload = match option.reload {
        Reload::InEffect => "at once, when the configuration is read again (SIGHUP)",
        Reload::NeedsRestart => "after a restart",
        Reload::NoEffect => "never",
    };
    Some(format!(
        "{name}\n{doc}  status: {status}; {meaning}\n{kinds}  default: {}\n{of_stock}  in effect: {reload}\n",
        option.defaults_text(),
    ))
}

fn status(option: &ConfigOption) -> (&'static str, String) {
    let meaning = match option.status {
        Status::Honoured if option.is_ours() => {
            "an option of this program, stock passes over it".to_owned()
        }
        Status::Honoured => "it means what it means in Salt".to_owned(),
        Status::NotBuilt(part) => {
            format!("it is for a part that is not built: {}", part.part())
        }
        Status::Refused(why) => format!("the master starts with the default only: {why}"),
        Status::NoEffect(why) => why.to_owned(),
        Status::InPython => "it is for a module that runs in Python (python_bridge)".to_owned(),
    };
    (option.status.name(), meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_explained() {
        let stock = options::all().iter().map(|option| option.name);
        for name in stock.chain(options::OURS.iter().map(|option| option.name)) {
            let text = describe(name).unwrap();
            for part in ["status: ", "default: ", "in effect: "] {
                assert!(text.contains(part), "{name}: {text}");
            }
        }
        assert_eq!(describe("no_such_option"), None);
        assert!(describe("gitfs_provider").unwrap().contains("no effect"));
        assert!(describe("cluster_id").unwrap().contains("refused"));
        assert!(describe("keep_jobs_seconds").unwrap().contains("86400"));
    }
}
