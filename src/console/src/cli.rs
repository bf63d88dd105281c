//! Command lines that do what a page does, as one types them into a shell.

use saltern_python::shlex::quote;

/// A command line of these words.
pub(crate) fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(quote).collect();
    words.join(" ")
}

/// The option of `salt` for a type of target; nothing for globs.
pub(crate) fn target_option(target_type: &str) -> Option<&'static str> {
    Some(match target_type {
        "compound" => "-C",
        "grain" => "-G",
        "grain_pcre" => "--grain-pcre",
        "ipcidr" => "-S",
        "list" => "-L",
        "nodegroup" => "-N",
        "pcre" => "-E",
        "pillar" => "-I",
        "pillar_exact" => "--pillar-exact",
        "pillar_pcre" => "--pillar-pcre",
        "range" => "-R",
        _ => return None,
    })
}

/// `salt` with a target, a function and arguments as they were typed.
pub(crate) fn salt(
    options: &[String],
    (target, target_type): (&str, &str),
    function: &str,
    arguments: &[String],
) -> String {
    let mut words = vec!["salt"];
    words.extend(options.iter().map(String::as_str));
    words.extend(target_option(target_type));
    words.extend([target, function]);
    words.extend(arguments.iter().map(String::as_str));
    line(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let arguments = ["a b".to_owned(), "x='1'".to_owned()];
        assert_eq!(
            salt(
                &[],
                ("G@os:Debian and web*", "compound"),
                "cmd.run",
                &arguments
            ),
            "salt -C 'G@os:Debian and web*' cmd.run 'a b' 'x='\"'\"'1'\"'\"''"
        );
        assert_eq!(
            salt(&[], ("*", "glob"), "test.ping", &[]),
            "salt '*' test.ping"
        );
    }
}
