//! The sources that ask a server, against one of this process.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use super::{cases::Case, compare, ours, site};

/// Serves each connection by its path until the test ends. The port is given back.
fn serve() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let headers: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let path = first.split(' ').nth(1).unwrap();
            // A peer that has hung up is not this thread's concern.
            let _ = stream.write_all(answer(path, &headers).as_bytes());
        }
    });
    port
}

fn answer(path: &str, headers: &[String]) -> String {
    let header = |name: &str| {
        let found = headers.iter().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        });
        found.unwrap_or_default()
    };
    let ok = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    match path {
        "/json" => ok("{\"a\": [1, null, true], \"kept\": 2}"),
        "/yaml" => ok("a: [1, yes]\nb: 0x10\n"),
        "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\na: \r\n1\r\n1\r\n0\r\n\r\n"
            .to_owned(),
        "/list" => ok("[1]"),
        "/broken" => ok("{"),
        "/moved" => "HTTP/1.1 302 Found\r\nLocation: /json\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/loop" => "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/none" => "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        "/headers" => ok(&format!(
            "{{\"x\": \"{}\", \"auth\": \"{}\"}}",
            header("X-Token"),
            header("Authorization")
        )),
        path => ok(&format!("{{\"path\": \"{path}\"}}")),
    }
}

/// Options with `{url}` for the server.
const CASES: &[&str] = &[
    "ext_pillar: [{http_json: {url: '{url}/json'}}]",
    "ext_pillar: [{http_json: '{url}/json'}]",
    "ext_pillar: [{http_json: {url: '{url}/json', namespace: below}}]",
    "ext_pillar: [{http_yaml: {url: '{url}/yaml'}}]",
    "ext_pillar: [{http_yaml: {url: '{url}/yaml', namespace: below}}]",
    "ext_pillar: [{http_yaml: {url: '{url}/chunks'}}]",
    "ext_pillar: [{http_json: {url: '{url}/of/%s?id=%s'}}]",
    "ext_pillar: [{http_json: {url: '{url}/<os>/<deep:er>/<number>/<odd>', with_grains: true}}]",
    "ext_pillar: [{http_json: {url: '{url}/<none>', with_grains: true}}]",
    "ext_pillar: [{http_json: {url: '{url}/<roles>', with_grains: true}}]",
    "ext_pillar: [{http_json: {url: '{url}/moved'}}]",
    "ext_pillar: [{http_json: {url: '{url}/loop'}}]",
    "ext_pillar: [{http_json: {url: '{url}/none'}}]",
    "ext_pillar: [{http_json: {url: '{url}/broken'}}]",
    "ext_pillar: [{http_json: {url: '{url}/headers', header_dict: {X-Token: t}, username: u, \
     password: p}}]",
    "ext_pillar: [{http_json: {url: 'http://127.0.0.1:1/'}}]",
    "ext_pillar: [{http_json: {}}]",
];

fn case() -> Case {
    Case {
        ext_pillar: "",
        saltenv: None,
        pillarenv: None,
    }
}

#[test]
fn http_requests_are_those_of_stock() {
    let port = serve();
    let site = site();
    let case = case();
    let cases: Vec<(&Case, String)> = CASES
        .iter()
        .map(|text| {
            (
                &case,
                text.replace("{url}", &format!("http://127.0.0.1:{port}")),
            )
        })
        .collect();
    compare("3007.15", site.path(), &cases);
}

#[test]
fn http_json_without_valid_tls_gives_nothing() {
    // What answers is no TLS at all, which the client must notice before it sends anything.
    let port = serve();
    let site = site();
    let option = format!("ext_pillar: [{{http_json: {{url: 'https://127.0.0.1:{port}/json'}}}}]");
    let (pillar, errors) = ours(site.path(), &case(), &option);
    assert_eq!((pillar.get("a"), errors.as_slice()), (None, &[][..]));
}
