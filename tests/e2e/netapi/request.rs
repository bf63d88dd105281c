//! One HTTP request on a connection of its own, and its answer with all headers.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};
use saltern_tests::site::SOON;
use serde_json::Value;

/// A request.
#[derive(Clone)]
pub(super) struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"),
            body: Vec::new(),
        }
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new("GET", path).header("Accept", "application/json")
    }

    pub(super) fn post(path: &str, value: &Value) -> Self {
        let accepting = Self::new("POST", path).header("Accept", "application/json");
        let body = value.to_string().into_bytes();
        Self { body, ..accepting }.header("Content-Type", "application/json")
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Sends it to this port.
    pub(super) fn send(&self, port: u16) -> Result<Answer> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(SOON))?;
        let length = self.body.len();
        let head = format!("{}Content-Length: {length}\r\n\r\n", self.head);
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer)?;
        Answer::read(&answer).with_context(|| format!("{head}was answered\n{answer}"))
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Some(Self {
            status,
            headers: headers.collect(),
            body: body.to_owned(),
        })
    }

    /// The value of a header, whose name is given in small letters.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("{self:?}"))
    }
}
