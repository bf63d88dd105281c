//! Syntax options of templates: `jinja_env`, `jinja_sls_env`, and the header of a single file.

use saltern_wire::msgpack::Value;

/// The marks and white-space rules of a template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Syntax {
    pub(crate) block_start: String,
    pub(crate) block_end: String,
    pub(crate) print_start: String,
    pub(crate) print_end: String,
    pub(crate) comment_start: String,
    pub(crate) comment_end: String,
    pub(crate) line_statement: Option<String>,
    pub(crate) line_comment: Option<String>,
    pub(crate) trim_blocks: bool,
    pub(crate) lstrip_blocks: bool,
    pub(crate) keep_trailing_newline: bool,
}

impl Default for Syntax {
    fn default() -> Syntax {
        Syntax {
            block_start: "{%".to_owned(),
            block_end: "%}".to_owned(),
            print_start: "{{".to_owned(),
            print_end: "}}".to_owned(),
            comment_start: "{#".to_owned(),
            comment_end: "#}".to_owned(),
            line_statement: None,
            line_comment: None,
            trim_blocks: false,
            lstrip_blocks: false,
            keep_trailing_newline: false,
        }
    }
}

impl Syntax {
    /// Applies a mapping of Jinja2 settings; unknown ones are passed over, as stock does.
    fn apply(&mut self, settings: &Value) {
        for (key, value) in settings.as_map().into_iter().flatten() {
            let Some(key) = key.as_str() else { continue };
            let flag = || match value {
                Value::Bool(flag) => *flag,
                Value::Int(number) => *number != 0,
                _ => false,
            };
            let mark = || {
                value
                    .as_str()
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            };
            let set = |target: &mut String| {
                if let Some(text) = mark() {
                    *target = text;
                }
            };
            match key.to_lowercase().as_str() {
                "trim_blocks" => self.trim_blocks = flag(),
                "lstrip_blocks" => self.lstrip_blocks = flag(),
                "keep_trailing_newline" => self.keep_trailing_newline = flag(),
                "block_start_string" => set(&mut self.block_start),
                "block_end_string" => set(&mut self.block_end),
                "variable_start_string" => set(&mut self.print_start),
                "variable_end_string" => set(&mut self.print_end),
                "comment_start_string" => set(&mut self.comment_start),
                "comment_end_string" => set(&mut self.comment_end),
                "line_statement_prefix" => self.line_statement = mark(),
                "line_comment_prefix" => self.line_comment = mark(),
                other => tracing::debug!(option = other, "jinja environment option not used"),
            }
        }
    }

    /// The syntax that the master's options ask for. `sls` distinguishes SLS files from other
    /// templates.
    pub(crate) fn of(opts: Option<&Value>, sls: bool) -> Syntax {
        let mut syntax = Syntax::default();
        let Some(opts) = opts else { return syntax };
        let name = if sls { "jinja_sls_env" } else { "jinja_env" };
        if let Some(settings) = opts.get(name) {
            syntax.apply(settings);
        }
        let on = |name: &str| opts.get(name).and_then(Value::as_bool).unwrap_or(false);
        if on("jinja_trim_blocks") {
            syntax.trim_blocks = true;
        }
        if on("jinja_lstrip_blocks") {
            syntax.lstrip_blocks = true;
        }
        syntax
    }

    /// Honours a `#jinja2: {…}` line at the top (or below a renderer line) and takes it away.
    /// A header that is not a JSON object is left where it is, as stock leaves it.
    pub(crate) fn take_header(&mut self, source: &str) -> Option<String> {
        let mut lines: Vec<&str> = source.split_inclusive('\n').collect();
        let first = lines.first()?;
        let at = usize::from(first.starts_with("#!") && !first.starts_with("#!/"));
        let payload = lines.get(at)?.strip_prefix("#jinja2:")?;
        let settings = crate::render::json::parse(payload.trim()).ok()?;
        settings.as_map()?;
        self.apply(&settings);
        lines.remove(at);
        Some(lines.concat())
    }
}
