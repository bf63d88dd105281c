//! The clients that publish jobs: `local`, `local_async`, `local_subset` and `local_batch`.

use std::collections::BTreeSet;

use saltern_client::{
    BatchNews, BatchWishes, ClientError, LocalClient, MinionOutcome, PublishRequest, Published,
};
use saltern_model::Jid;
use saltern_requests::without_nodegroups;
use saltern_wire::msgpack::Value;

use super::chunk::{Chunk, arguments};
use super::error::{CallError, malformed, refusal};
use super::{Answered, Calls};

impl Calls<'_> {
    pub(super) async fn local(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let whole = chunk.take_flag("full_return");
        let (client, request) = self.publication(chunk)?;
        self.follow(&client, &request, whole).await
    }

    async fn follow(
        &self,
        client: &LocalClient,
        request: &PublishRequest,
        whole: bool,
    ) -> Result<Answered, CallError> {
        let mut job = match client.run(request).await {
            Ok(job) => job,
            Err(ClientError::NoMinions) => return Ok(Answered::one(Value::Map(Vec::new()))),
            Err(error) => return Err(refusal(error)),
        };
        let jid = job.jid().to_owned();
        let mut returns = Vec::new();
        while let Some(outcome) = job.next().await.map_err(refusal)? {
            if !self.shows_silent && matches!(outcome, MinionOutcome::NoResponse { .. }) {
                continue;
            }
            let (id, value) = shown(outcome, &jid, whole);
            returns.push((id.into(), value));
        }
        Ok(Answered::one(Value::from_iter(returns)).of_job(&jid))
    }

    pub(super) async fn local_async(&self, chunk: Chunk) -> Result<Answered, CallError> {
        let (client, request) = self.publication(chunk)?;
        match client.publish(&request).await {
            Ok(published) => Ok(begun(published)),
            Err(ClientError::NoMinions) => Ok(Answered::one(Value::Map(Vec::new()))),
            Err(error) => Err(refusal(error)),
        }
    }

    /// Asks which minions have the function, and runs it on some of these.
    pub(super) async fn local_subset(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let subset = chunk.take("sub").or_else(|| chunk.take("subset"));
        let _ = chunk.take("subset");
        let subset = match &subset {
            None => Some(3),
            Some(Value::Str(text)) => text.trim().parse().ok(),
            Some(other) => other.as_u64(),
        };
        let subset = subset.and_then(|subset| usize::try_from(subset).ok());
        let subset = subset.ok_or_else(|| malformed("'subset' is no number"))?;
        let whole = chunk.take_flag("full_return");
        for name in ["cli", "progress"] {
            let _ = chunk.take(name);
        }
        let mut question = chunk.clone();
        for name in ["arg", "kwarg", "ret"] {
            let _ = question.take(name);
        }
        question.set("fun", "sys.list_functions");
        let (client, request) = self.publication(question)?;
        let known = self.follow(&client, &request, false).await?;
        let known = known.values.into_iter().next().unwrap_or_default();
        let fun = Value::from(chunk.text("fun").unwrap_or_default());
        let has_it = |functions: &Value| match functions {
            Value::Array(functions) => functions.contains(&fun),
            Value::Map(functions) => functions.iter().any(|(name, _)| *name == fun),
            _ => false,
        };
        let minions = known.as_map().unwrap_or_default().iter();
        let minions = minions.filter(|(_, functions)| has_it(functions));
        let mut minions: Vec<Value> = minions.map(|(id, _)| id.clone()).collect();
        shuffle(&mut minions);
        minions.truncate(subset);
        chunk.set("tgt", Value::Array(minions));
        chunk.set("tgt_type", "list");
        let (client, request) = self.publication(chunk)?;
        self.follow(&client, &request, whole).await
    }

    /// A batch that the master drives.
    pub(super) async fn local_batch(&self, mut chunk: Chunk) -> Result<Answered, CallError> {
        let size = match chunk.take("batch") {
            None => "10%".to_owned(),
            Some(Value::Str(text)) => text,
            Some(other) => saltern_python::repr(&other),
        };
        let wishes = BatchWishes {
            size: Some(size),
            failhard: chunk.take_flag("failhard"),
            wait: chunk
                .take_seconds("batch_wait")
                .map(|wait| wait.as_secs_f64()),
            ..BatchWishes::default()
        };
        let whole = chunk.take_flag("raw");
        let (client, mut request) = self.publication(chunk)?;
        request.batch = Some(wishes);
        let (published, mut batch) = match client.run_batch(&request).await {
            Ok(begun) => begun,
            Err(ClientError::NoMinions) => return Ok(Answered::default()),
            // Such as a size that is none.
            Err(ClientError::Publish(text)) => return Err(CallError::Malformed(text)),
            Err(error) => return Err(refusal(error)),
        };
        let mut answered = Answered::default().of_job(&published.jid);
        let mut returned = BTreeSet::new();
        loop {
            match batch.next().await.map_err(refusal)? {
                BatchNews::Returned(minion) if returned.insert(minion.id.clone()) => {
                    let outcome = MinionOutcome::Returned(minion);
                    let (id, value) = shown(outcome, &published.jid, whole);
                    answered.values.push(Value::map([(id, value)]));
                }
                BatchNews::Over(_) | BatchNews::Missed(_) => return Ok(answered),
                BatchNews::Part(_) | BatchNews::Returned(_) => {}
            }
        }
    }

    /// The request to publish of a chunk of the local clients, and the client that sends it.
    fn publication(&self, mut chunk: Chunk) -> Result<(LocalClient, PublishRequest), CallError> {
        let tgt = chunk
            .take("tgt")
            .ok_or_else(|| malformed("'tgt' is missing"))?;
        let fun = chunk
            .take("fun")
            .ok_or_else(|| malformed("'fun' is missing"))?;
        if !is_function(&fun) {
            return Err(malformed("'fun' is no function"));
        }
        let tgt_type = chunk
            .take_text("tgt_type")
            .unwrap_or_else(|| "glob".to_owned());
        let (tgt, tgt_type) = self.without_nodegroups(tgt, tgt_type)?;
        let mut request = PublishRequest::new(tgt, &tgt_type, "", arguments(&mut chunk)?);
        request.fun = fun;
        request.ret = chunk.take_text("ret").unwrap_or_default();
        request.jid = chunk.take_text("jid").unwrap_or_default();
        // It becomes the name of files.
        if !request.jid.is_empty() && Jid::parse(&request.jid).is_err() {
            return Err(malformed("'jid' is no id of a job"));
        }
        request.timeout = chunk.take_seconds("timeout");
        let client = self.client(chunk.take_credentials());
        let others = chunk.0.into_iter().filter_map(|(name, value)| match name {
            Value::Str(name) => Some((name, value)),
            _ => None,
        });
        request.kwargs = others.collect();
        Ok((client, request))
    }

    /// Nodegroups are the client's business: they are written out before a job is published.
    fn without_nodegroups(
        &self,
        tgt: Value,
        tgt_type: String,
    ) -> Result<(Value, String), CallError> {
        let words: Vec<String> = match (tgt_type.as_str(), &tgt) {
            ("nodegroup", Value::Str(name)) => vec![format!("N@{name}")],
            ("compound", Value::Str(text)) if text.contains("N@") => {
                text.split_whitespace().map(str::to_owned).collect()
            }
            _ => return Ok((tgt, tgt_type)),
        };
        let words = without_nodegroups(self.api.config(), &words);
        let words = words.map_err(|error| CallError::Malformed(error.to_string()))?;
        Ok((words.join(" ").into(), "compound".to_owned()))
    }
}

fn begun(published: Published) -> Answered {
    let minions = published.minions.into_iter().map(Value::from);
    let begun = [
        ("jid", Value::from(published.jid.as_str())),
        ("minions", Value::Array(minions.collect())),
    ];
    Answered::one(Value::map(begun)).of_job(&published.jid)
}

/// A minion's answer; in whole, with its return code and outputter, or the value alone.
fn shown(outcome: MinionOutcome, jid: &str, whole: bool) -> (String, Value) {
    match outcome {
        MinionOutcome::Returned(returned) if whole => {
            let mut data = vec![("ret", returned.value)];
            data.extend(returned.out.map(|out| ("out", out.into())));
            data.push(("retcode", returned.retcode.into()));
            data.push(("jid", jid.into()));
            (returned.id, Value::map(data))
        }
        MinionOutcome::Returned(returned) => (returned.id, returned.value),
        MinionOutcome::NoResponse { id, absence } => {
            let text = match absence {
                Some(absence) if !absence.is_connected => {
                    "Minion did not return. [Not connected]".to_owned()
                }
                _ => format!(
                    "Minion did not return. [No response]\nThe minions may not have all finished \
                     running and any remaining minions will return upon completion. To look up \
                     the return data for this job later, run the following command:\n\nsalt-run \
                     jobs.lookup_jid {jid}"
                ),
            };
            let value = match whole {
                false => text.into(),
                true => Value::map([
                    ("out", Value::from("no_return")),
                    ("ret", text.into()),
                    ("retcode", 1_i64.into()),
                ]),
            };
            (id, value)
        }
    }
}

/// Brings them into a random order.
fn shuffle(items: &mut [Value]) {
    for last in (1..items.len()).rev() {
        let mut bytes = [0_u8; 8];
        // Without random bytes the order stays.
        if getrandom::fill(&mut bytes).is_err() {
            return;
        }
        let below = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let chosen = usize::try_from(u64::from_le_bytes(bytes) % below).unwrap_or(last);
        items.swap(last, chosen);
    }
}

/// Whether it names a function, or several.
fn is_function(fun: &Value) -> bool {
    match fun {
        Value::Str(_) => true,
        Value::Array(names) => names.iter().all(|name| name.as_str().is_some()),
        _ => false,
    }
}
