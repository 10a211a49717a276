//! Whether workers have the router's tokenizer: found out once for each when it registers, apart from any request. Who has
//! another one gets no credit for its cache: names of blocks made of other tokens are names of nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use router_tls::{Connector, Trust};
use router_tokens::{CANARY, Tokens};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::fleet::{self, Worker};
use crate::phase::{self, Phase};
use crate::picker::ByCache;

/// A worker that did not answer is asked again after this long: it may not be up yet.
const AGAIN: Duration = Duration::from_secs(10);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(5);
/// Workers that are asked at once.
const AT_ONCE_MAX: usize = 16;
/// Longest answer that is looked at.
const ANSWER_BYTES_MAX: usize = 1 << 20;

type ToWorkers = Client<Connector, Full<Bytes>>;

/// What vLLM and SGLang answer to `/tokenize`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Tokenized {
    tokens: Vec<u32>,
}

/// What is known after having asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Known(bool),
    /// The worker does not say such things; its answers will tell.
    Never,
    /// It did not answer.
    Later,
}

/// Looks at all workers, and at those that come, until the process is closing.
pub async fn run(
    (fleet, mut changes): (fleet::Shared, watch::Receiver<()>),
    trust: Trust,
    picker: Arc<ByCache>,
    mut phase: phase::Current,
) {
    let connector = trust.connector(HttpConnector::new(), PATIENCE);
    // One question for each worker: no connection is kept for another one.
    let mut client = Client::builder(TokioExecutor::new());
    let client: ToWorkers = client.pool_max_idle_per_host(0).build(connector);
    loop {
        let workers: Vec<_> = fleet.load().workers().cloned().collect();
        let asked = iter(workers).for_each_concurrent(AT_ONCE_MAX, |worker| {
            let (client, picker) = (&client, &picker);
            async move {
                let tokens = picker.tokens_of(&worker.record.model_name);
                let tokens = tokens.filter(|_| worker.life.is_tokenizer_asked_for());
                if let Some(tokens) = tokens {
                    take(&worker, judge(client, &worker, tokens).await);
                }
            }
        });
        tokio::select! {
            () = asked => {}
            () = phase::reached(&mut phase, Phase::Closing) => return,
        }
        // Nobody tells of changes any more: what is left is to ask again.
        let changed = async {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep(AGAIN) => {}
            () = phase::reached(&mut phase, Phase::Closing) => return,
        }
    }
}

fn take(worker: &Worker, verdict: Verdict) {
    let record = &worker.record;
    match verdict {
        Verdict::Later => {}
        Verdict::Never => worker.life.give_up_asking_for_tokenizer(),
        Verdict::Known(is_same) => {
            if worker.life.set_same_tokenizer(is_same) && !is_same {
                tracing::warn!(
                    worker = record.worker_id,
                    model = record.model_name,
                    "no credit for a worker with another tokenizer; name its files by --kv-tokenizer"
                );
            }
        }
    }
}

/// Compares the canary: that of the record, else what the worker makes of it.
async fn judge(client: &ToWorkers, worker: &Worker, tokens: &Tokens) -> Verdict {
    let canary = worker.record.kv.as_ref().and_then(|kv| kv.tokenizer_canary.as_deref());
    if let Some(ids) = canary {
        return Verdict::Known(tokens.agrees(ids));
    }
    let (url, model) = (&worker.record.url, &worker.record.model_name);
    timeout(PATIENCE, ask(client, url, model, tokens)).await.unwrap_or(Verdict::Later)
}

async fn ask(client: &ToWorkers, url: &str, model: &str, tokens: &Tokens) -> Verdict {
    let mut body = json!({"prompt": CANARY, "add_special_tokens": false});
    if !model.is_empty() {
        body["model"] = model.into();
    }
    let request = Request::post(format!("{}/tokenize", url.trim_end_matches('/')))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()));
    let Ok(request) = request else { return Verdict::Never };
    let Ok(answer) = client.request(request).await else { return Verdict::Later };
    let status = answer.status();
    if !status.is_success() {
        return if status.is_client_error() { Verdict::Never } else { Verdict::Later };
    }
    let Ok(body) = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await else {
        return Verdict::Later;
    };
    let tokenized = serde_json::from_slice(&body.to_bytes());
    tokenized
        .map_or(Verdict::Never, |Tokenized { tokens: ids }| Verdict::Known(tokens.agrees(&ids)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use router_tokens::Limits;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What is made of a worker that answers this, and what it was asked.
    async fn verdict(status: &str, body: &str, tokens: &Tokens) -> (Verdict, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        let worker = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 4096];
            let read = stream.read(&mut asked).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            asked.truncate(read);
            String::from_utf8(asked).unwrap()
        };
        let connector = Trust::read(None).unwrap().connector(HttpConnector::new(), PATIENCE);
        let client: ToWorkers = Client::builder(TokioExecutor::new()).build(connector);
        tokio::join!(ask(&client, &url, "m", tokens), worker)
    }

    #[tokio::test]
    async fn a_worker_is_told_by_the_ids_that_it_makes_of_the_canary() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tokens/tests/models/byte_level");
        let tokens = Tokens::load(&path, Limits::default()).unwrap();
        let request = json!({"prompt": CANARY, "add_special_tokens": false}).to_string();
        let parsed = router_tokens::Request::parse(
            router_tokens::Route::Completions,
            request.as_bytes(),
            1 << 20,
        );
        let manner = router_tokens::Manner::default();
        let prompt = tokens.of(&parsed.unwrap(), &manner, std::time::SystemTime::now()).unwrap();
        let ids = |ids: &[u32]| {
            json!({"count": ids.len(), "max_model_len": 64, "tokens": ids}).to_string()
        };
        let (same, asked) = verdict("200 OK", &ids(&prompt.ids), &tokens).await;
        assert_eq!(same, Verdict::Known(true));
        assert!(asked.starts_with("POST /tokenize HTTP/1.1\r\n"), "{asked}");
        for (status, body, expected) in [
            ("200 OK", ids(&prompt.ids[1..]), Verdict::Known(false)),
            ("200 OK", "{}".to_owned(), Verdict::Never),
            ("404 Not Found", String::new(), Verdict::Never),
            ("503 Service Unavailable", String::new(), Verdict::Later),
        ] {
            assert_eq!(verdict(status, &body, &tokens).await.0, expected, "{status} {body}");
        }
    }
}
