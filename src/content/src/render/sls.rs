//! The template variables of an SLS file's location: `tplfile`, `tpldir`, `slspath` and their
//! relatives (`generate_sls_context` in `salt/utils/templates.py`).

use saltern_wire::msgpack::Value;

use super::jinja::Context;

/// Sets the names by which a template knows its own path. `path` is the template's file, `sls` its
/// name with dots; what the caller has set already stays.
pub fn set_sls_context(context: &mut Context, path: &str, sls: &str) {
    let wanted = sls.replace('.', "/");
    let wanted = wanted.trim_end_matches('/');
    let mut set = |name: &str, value: &str| context.set_default(name, Value::from(value));
    let file = if sls.is_empty() {
        path.rsplit('/').next().unwrap_or(path).to_owned()
    } else if path.ends_with(&format!("{wanted}.sls")) {
        format!("{wanted}.sls")
    } else if path.ends_with(&format!("{wanted}/init.sls")) {
        format!("{wanted}/init.sls")
    } else {
        // Not an SLS file: `sls` is the path of a template.
        set("tplpath", path);
        set("tplfile", sls);
        set("tpldir", sls.rsplit_once('/').map_or(".", |(dir, _)| dir));
        return;
    };
    let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
    set("tplpath", path);
    set("tplfile", &file);
    set("tpldir", if dir.is_empty() { "." } else { dir });
    set("tpldot", &dir.replace('/', "."));
    set("slspath", dir);
    set("slsdotpath", &dir.replace('/', "."));
    set("slscolonpath", &dir.replace('/', ":"));
    set("sls_path", &dir.replace('/', "_"));
}
