//! The page of `/v1` of the handbook (`docs/reference/http.md`), made of its OpenAPI document. With
//! `UPDATE=1` the test writes it.

use std::fmt::Write as _;

use serde_json::Value as Json;

const HEAD: &str = "\
# /v1, the HTTP API of our own

Generated from the OpenAPI document of the program, which serves it at `/v1/openapi.json`;
`UPDATE=1 tests/run.sh -E 'test(reference_of_http)'` writes this page.
[How to turn it on, log in and follow events](../api.md) is on a page of its own, as is what it
[has of stock's salt-api](../../src/netapi/DIFFERENCES.md). Errors are `application/problem+json`.
";

fn text<'a>(value: &'a Json, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

/// The type of a value, as a reader names it.
fn kind(schema: &Json) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for any in ["oneOf", "anyOf", "allOf"] {
        if let Some(forms) = schema[any].as_array() {
            let mut forms: Vec<String> = forms.iter().map(kind).collect();
            forms.dedup();
            return forms.join(" or ");
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().filter_map(Json::as_str);
        return values
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let named = match &schema["type"] {
        Json::String(name) => name.clone(),
        Json::Array(names) => {
            let names = names.iter().filter_map(Json::as_str);
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    };
    match schema["items"].is_null() {
        true => named,
        false => format!("{named} of {}", kind(&schema["items"])),
    }
}

fn bodies(content: &Json) -> String {
    let bodies = content.as_object().into_iter().flatten();
    let bodies = bodies.map(|(media, body)| match body["schema"].is_null() {
        true => format!("`{media}`"),
        false => kind(&body["schema"]),
    });
    bodies.collect::<Vec<_>>().join(", ")
}

fn operation(page: &mut String, (method, path): (&str, &str), operation: &Json) {
    let _ = write!(page, "\n### {} {path}\n\n", method.to_uppercase());
    for part in ["summary", "description"] {
        let sentence = text(operation, part);
        if !sentence.is_empty() {
            let _ = writeln!(page, "{}\n", escaped(sentence));
        }
    }
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|list| !list.is_empty()) {
        page.push_str("| parameter | in | type | meaning |\n|---|---|---|---|\n");
        for parameter in parameters {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                text(parameter, "name"),
                text(parameter, "in"),
                kind(&parameter["schema"]),
                escaped(text(parameter, "description")),
            );
        }
        page.push('\n');
    }
    if !operation["requestBody"].is_null() {
        let _ = writeln!(
            page,
            "Body: {}.\n",
            bodies(&operation["requestBody"]["content"])
        );
    }
    page.push_str("| answer | what | body |\n|---|---|---|\n");
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        let what = escaped(text(answer, "description"));
        let _ = writeln!(
            page,
            "| {status} | {what} | {} |",
            bodies(&answer["content"])
        );
    }
}

fn schema(page: &mut String, name: &str, schema: &Json) {
    let _ = write!(page, "\n### {name}\n\n");
    let sentence = text(schema, "description");
    if !sentence.is_empty() {
        let _ = writeln!(page, "{}\n", escaped(sentence));
    }
    let Some(properties) = schema["properties"].as_object() else {
        let _ = writeln!(page, "{}", kind(schema));
        return;
    };
    page.push_str("| field | type | meaning |\n|---|---|---|\n");
    for (field, value) in properties {
        let what = escaped(text(value, "description"));
        let _ = writeln!(page, "| `{field}` | {} | {what} |", kind(value));
    }
}

#[test]
fn reference_of_http_says_what_the_document_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/http.md");
    let document = serde_json::to_value(super::document()).unwrap();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Requests\n");
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "delete"] {
            if !item[method].is_null() {
                operation(&mut page, (method, path), &item[method]);
            }
        }
    }
    page.push_str("\n## Forms of requests and answers\n");
    for (name, form) in document["components"]["schemas"].as_object().unwrap() {
        schema(&mut page, name, form);
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = page.lines().zip(written.lines());
    let differs = lines.find(|(made, line)| made != line);
    assert_eq!(
        differs, None,
        "write docs/reference/http.md anew with UPDATE=1"
    );
    assert_eq!(
        page.len(),
        written.len(),
        "write docs/reference/http.md anew with UPDATE=1"
    );
}
