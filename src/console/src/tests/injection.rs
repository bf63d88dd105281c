//! No text that others choose becomes an element or an attribute: every page has the same elements and
//! attributes with a harmless text as with each payload in every field.

use std::collections::HashMap;

use super::*;

/// Texts that execute something where they are not escaped.
const PAYLOADS: [&str; 50] = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "<img src=\"x\" onerror=\"alert(1)\">",
    "<img src='x' onerror='alert(1)'>",
    "<img/src=x/onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<body onload=alert(1)>",
    "<iframe src=\"javascript:alert(1)\"></iframe>",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=\"javascript:alert(1)\">",
    "<embed src=\"javascript:alert(1)\">",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<form action=\"javascript:alert(1)\"><button>x</button></form>",
    "<input autofocus onfocus=alert(1)>",
    "<select autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>",
    "<base href=\"//evil.example/\">",
    "<meta http-equiv=\"refresh\" content=\"0;url=javascript:alert(1)\">",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css';</style>",
    "<template><img src=x onerror=alert(1)></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "\" onmouseover=\"alert(1)",
    "' onmouseover='alert(1)",
    "\" autofocus onfocus=alert(1) x=\"",
    "\"><img src=x onerror=alert(1)>",
    "'><img src=x onerror=alert(1)>",
    "` onmouseover=alert(1)",
    "javascript:alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "{{ frame.csrf }}{% include 'layout.html' %}",
    "\u{202e}<script>alert(1)</script>",
    "<script\u{c}>alert(1)</script\t>",
    "x\" style=\"background:url(javascript:alert(1))",
];

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
    let harmless = Rig::new(Table::full("harmless"));
    let mut expected = HashMap::new();
    let mut all = pages();
    all.push("/console/minions/m1/pillar".to_owned());
    for path in &all {
        expected.insert(path.clone(), page(&harmless, path).await);
    }
    for payload in PAYLOADS {
        let rig = Rig::new(Table::full(payload));
        for path in &all {
            let html = page(&rig, path).await;
            let (found, wanted) = (tags(&html), tags(&expected[path]));
            assert_eq!(shape(&found), shape(&wanted), "{payload} in {path}");
            assert!(!html.contains("<script>"), "{payload} in {path}");
            for tag in &found {
                for (name, value) in &tag.attributes {
                    let is_own = value.starts_with("/console")
                        || value.starts_with("&#x2f;console")
                        || value == "#main";
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
