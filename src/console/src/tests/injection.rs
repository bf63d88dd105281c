//! No text that others choose becomes an element or an attribute: every page has the same elements and
//! attributes with a harmless text as with each payload in every field.

use std::collections::HashMap;

use super::*;

/// Texts that execute something where they are not escaped.
const PAYLOADS: [&str; 50] = include!("payloads.in");

/// A start or end tag with its attributes, as a browser reads it.
#[derive(Debug, PartialEq)]
struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
}

/// The tags of a page. What stands between `<` and `>` is a tag; values are quoted, as templates do.
fn tags(html: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest
            .find(|letter: char| letter.is_whitespace() || letter == '>')
            .unwrap();
        let name = rest[..end].to_lowercase();
        let mut attributes = Vec::new();
        rest = &rest[end..];
        loop {
            rest = rest.trim_start();
            if let Some(behind) = rest.strip_prefix('>') {
                rest = behind;
                break;
            }
            let end = rest
                .find(|letter: char| letter.is_whitespace() || "=>".contains(letter))
                .unwrap();
            let attribute = rest[..end].to_lowercase();
            rest = &rest[end..];
            let value = match rest.strip_prefix("=\"") {
                Some(quoted) => {
                    let end = quoted.find('"').unwrap();
                    rest = &quoted[end + 1..];
                    quoted[..end].to_owned()
                }
                None => {
                    assert!(
                        !rest.starts_with('='),
                        "a value without quotes: {}",
                        &rest[..40]
                    );
                    String::new()
                }
            };
            attributes.push((attribute, value));
        }
        tags.push(Tag { name, attributes });
    }
    tags
}

/// Names of tags and attributes without values.
fn shape(tags: &[Tag]) -> Vec<(&str, Vec<&str>)> {
    let tags = tags.iter();
    tags.map(|tag| {
        let names = tag.attributes.iter().map(|(name, _)| name.as_str());
        (tag.name.as_str(), names.collect())
    })
    .collect()
}

/// Attributes in which a browser looks for an address.
const ADDRESSES: [&str; 7] = [
    "href",
    "src",
    "action",
    "formaction",
    "data-load",
    "data-live",
    "data-events",
];

#[tokio::test]
async fn no_text_of_others_becomes_an_element_or_an_attribute() {
    // The form shows documentation of what may be the name of a function, which has a dot.
    let mut expected = HashMap::new();
    let mut all = pages();
    all.push("/console/minions/m1/pillar".to_owned());
    for text in ["harmless", "harm.less"] {
        let rig = Rig::new(Table::full(text));
        for path in &all {
            expected.insert((text.contains('.'), path), page(&rig, path).await);
        }
    }
    for payload in PAYLOADS {
        let rig = Rig::new(Table::full(payload));
        let is_dotted = payload.contains('.') && !payload.ends_with('.');
        for path in &all {
            let html = page(&rig, path).await;
            let (found, wanted) = (tags(&html), tags(&expected[&(is_dotted, path)]));
            assert_eq!(shape(&found), shape(&wanted), "{payload} in {path}");
            assert!(!html.contains("<script>"), "{payload} in {path}");
            for tag in &found {
                for (name, value) in &tag.attributes {
                    let is_own = value.starts_with("/console")
                        || value.starts_with("&#x2f;console")
                        || ["#main", "#dead"].contains(&value.as_str());
                    assert!(
                        !ADDRESSES.contains(&name.as_str()) || is_own,
                        "{name}={value} in {path}"
                    );
                }
            }
        }
    }
}

/// A page; the minion is the one with the text in its id.
async fn page(rig: &Rig, path: &str) -> String {
    let id = rig.master.minion();
    let path = path.replace("/minions/m1", &format!("/minions/{}", site::encoded(&id)));
    let answer = match path.ends_with("/pillar") {
        true => rig.post(&path, &[]).await,
        false => rig.get(&path).await,
    };
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
    answer.body
}
