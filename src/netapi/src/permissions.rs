//! The permissions that a log-in is answered with (`sum_permissions` and `sorted_permissions` in
//! `salt/netapi/__init__.py`). For the client's information: the gate reads the rules itself.

use saltern_config::MasterConfig;
use saltern_requests::yaml_value;
use saltern_wire::msgpack::Value;

/// Permissions of the owner of a token in `external_auth`: of the name, of everybody and of the
/// groups, texts first, sorted, each once. `None` where the configuration has another form.
pub(crate) fn permissions(token: &Value, config: &MasterConfig) -> Option<Vec<Value>> {
    let text = |name: &str| token.get(name).and_then(Value::as_str);
    let (eauth, name) = (text("eauth")?, text("name")?);
    let carried = token.get("auth_list").and_then(Value::as_array);
    let followed = config.followed();
    let external = followed.external_auth();
    let rules = yaml_value(external.node()?);
    let rules = rules.get(eauth).cloned().unwrap_or(Value::Map(Vec::new()));
    let is_in_token = (eauth == "django" && rules.get("^model").is_some()) || eauth == "rest";
    if let Some(carried) = carried.filter(|_| is_in_token) {
        return Some(carried.to_vec());
    }
    let users = rules.as_map()?;
    let mut all = Vec::new();
    for user in [name, "*"] {
        match rules.get(user) {
            Some(Value::Array(permissions)) => all.extend(permissions.iter().cloned()),
            Some(_) => return None,
            None => {}
        }
    }
    let groups = token.get("groups").and_then(Value::as_array);
    let groups: Vec<&str> = groups
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for (group, permissions) in users {
        let group = group.as_str().and_then(|group| group.strip_suffix('%'));
        if group.is_some_and(|group| groups.contains(&group.trim_end_matches('%'))) {
            all.extend(permissions.as_array()?.iter().cloned());
        }
    }
    Some(sorted(all))
}

fn sorted(all: Vec<Value>) -> Vec<Value> {
    let mut texts: Vec<String> = Vec::new();
    let mut others: Vec<Value> = Vec::new();
    for permission in all {
        match permission {
            Value::Str(text) => {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            other => {
                if !others.contains(&other) {
                    others.push(other);
                }
            }
        }
    }
    texts.sort_unstable();
    others.sort_by_cached_key(|other| saltern_python::repr(other));
    texts.into_iter().map(Value::from).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_sorted_and_each_stands_once() {
        let map = |name: &str| Value::map([(name, Value::from("x"))]);
        let all = vec![
            map("b"),
            "@runner".into(),
            ".*".into(),
            map("a"),
            "@runner".into(),
            map("b"),
        ];
        let expected = vec![".*".into(), "@runner".into(), map("a"), map("b")];
        assert_eq!(sorted(all), expected);
    }
}
