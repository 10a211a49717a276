//! The router between real sockets: what reaches workers and clients, and what becomes of either side's faults.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kvd_tests::PATIENCE;
use kvd_tests::router::client::{CHAT, get, send};
use kvd_tests::router::worker::{body_of, chat_stream, event, headers, stream_head, whole};
use kvd_tests::router::{Router, Step, Worker, ask, post, run};
use kvd_tests::until::{until, until_true};
use nix::sys::signal::Signal;

const CUT_OFF: &str = "an answer was not finished";
const NO_ANSWER: &str = "a worker did not answer";

/// What a stream is interrupted with.
fn interruption(body: &str) -> (&str, serde_json::Value) {
    let (before, last) = body.rsplit_once("data: ").unwrap();
    assert!(last.ends_with("\n\n"), "{body:?}");
    (before, serde_json::from_str(last.trim_end()).unwrap())
}

#[test]
fn a_stream_arrives_byte_for_byte_and_chunk_by_chunk() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &[]);
    let mut odd = vec![stream_head()];
    // Cut in the middle of events and of characters, with all line ends there are, comments and empty data.
    let pieces: [&[u8]; 7] = [
        b"data: {\"a\":\"\xc3",
        b"\xa9\"}\n",
        b"\ndata:\n\n: keep-alive\n\n",
        b"event: x\r\ndata: 1\r\n\r\n",
        b"data: [DONE] not yet\n\n",
        b"data: [DO",
        b"NE]\n\n",
    ];
    for piece in pieces {
        odd.push(Step::Bytes(piece.to_vec()));
        odd.push(Step::Pause(Duration::from_millis(20)));
    }
    odd.push(Step::End);
    worker.answer(odd.clone());
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    // Each piece goes on before the next one has come.
    for piece in pieces {
        assert_eq!(reply.chunk().unwrap(), piece);
    }
    assert_eq!(reply.chunk().unwrap(), b"");
    let large = chat_stream(20_000);
    worker.answer(large.clone());
    assert!(ask(router.address()).rest().unwrap() == body_of(&large), "20 000 events");
}

#[test]
fn a_request_reaches_the_worker_as_it_was_sent() {
    let worker = Worker::start();
    worker.answer(whole(200, &[("x-vendor", "v"), ("x-request-id", "the worker's")], "{\"ok\":1}"));
    let router = Router::for_workers(&[&worker], &["--drop-header", "X-Secret"]);
    let body = "{ \"z\": 1,\"model\":\"any\", \"unknown\":{\"b\":[1.50,1e3]},\"a\":\"\\u00e9\" }";
    let sent = [
        ("authorization", "Bearer k"),
        ("x-secret", "s"),
        ("x-data-parallel-rank", "3"),
        ("accept-encoding", "gzip"),
        ("x-request-id", "mine"),
        ("traceparent", "00-ab"),
    ];
    for path in [
        "/v1/chat/completions?x=1&y=%20",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/tokenize",
    ] {
        let mut reply = post(router.address(), path, &sent, body);
        assert_eq!((reply.status, reply.header("x-vendor")), (200, Some("v")));
        for name in ["x-request-id", "x-infera-request-id"] {
            assert_eq!(reply.header(name), Some("mine"));
        }
        assert_eq!(reply.text(), "{\"ok\":1}");
        let seen = worker.seen().pop().unwrap();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", path));
        assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), body);
        assert_eq!(seen.header("authorization"), Some("Bearer k"));
        assert_eq!(seen.header("traceparent"), Some("00-ab"));
        assert_eq!(seen.header("x-request-id"), Some("mine"));
        assert_eq!(seen.header("accept-encoding"), Some("identity"));
        assert_eq!(seen.header("host"), Some(worker.address().to_string().as_str()));
        for kept in ["x-secret", "x-data-parallel-rank", "connection", "transfer-encoding"] {
            assert_eq!(seen.header(kept), None);
        }
    }
}

#[test]
fn a_body_may_come_in_pieces_and_be_large() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &[]);
    let large = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "0123456789".repeat(1 << 20));
    let mut reply = post(router.address(), "/v1/completions", &[], &large);
    assert_eq!(reply.rest().unwrap(), body_of(&chat_stream(3)));
    assert!(worker.seen().pop().unwrap().body == large.as_bytes(), "10 MiB");
    let mut stream = TcpStream::connect(router.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for piece in CHAT.as_bytes().chunks(7) {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
        stream.write_all(piece).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("data: [DONE]"), "{answer}");
    assert_eq!(worker.seen().pop().unwrap().body, CHAT.as_bytes());
}

#[test]
fn connections_are_used_again_on_both_sides() {
    let worker = Worker::start();
    worker.answer(whole(200, &[], "{}"));
    let router = Router::for_workers(&[&worker], &[]);
    let mut stream = TcpStream::connect(router.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..10 {
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            CHAT.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(CHAT.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n{}") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection was closed");
            answer.extend_from_slice(&bytes[..count]);
        }
    }
    assert_eq!((worker.seen().len(), worker.connections()), (10, 1));
}

#[test]
fn workers_take_turns() {
    let workers = [Worker::start(), Worker::start(), Worker::start()];
    let router = Router::for_workers(&workers.each_ref(), &[]);
    for _ in 0..9 {
        assert_eq!(ask(router.address()).rest().unwrap(), body_of(&chat_stream(3)));
    }
    assert_eq!(workers.each_ref().map(|worker| worker.seen().len()), [3, 3, 3]);
    for worker in &workers {
        let picks = format!(
            "infera_router_picks_total{{role=\"mixed\",worker_id=\"{}\"}}",
            worker.address()
        );
        assert_eq!(router.count(&picks), 3);
    }
}

#[test]
fn the_least_loaded_worker_is_taken() {
    let (busy, idle) = (Worker::start(), Worker::start());
    let router = Router::for_workers(&[&busy, &idle], &["--router-policy", "least-load"]);
    for worker in [&busy, &idle] {
        worker.answer(vec![stream_head(), Step::Bytes(event("x")), Step::Hold]);
    }
    // Two are held, one at each; then one of them ends, and the next three go where it was.
    let mut held = [ask(router.address()), ask(router.address())];
    assert_eq!((busy.seen().len(), idle.seen().len()), (1, 1));
    held[0].chunk().unwrap();
    for worker in [&busy, &idle] {
        worker.answer(chat_stream(1));
    }
    let [first, second] = held;
    drop(first);
    until_true("one has left", || busy.left().len() + idle.left().len() == 1);
    let free = if busy.left().is_empty() { &idle } else { &busy };
    until_true("it is known", || router.in_flight() == 1);
    for _ in 0..3 {
        ask(router.address()).rest().unwrap();
    }
    assert_eq!(free.seen().len(), 4);
    drop(second);
}

#[test]
fn errors_look_as_openais_do() {
    let worker = Worker::start();
    let url = format!("{}=m", worker.url());
    let router = Router::start(&["--worker", &url, "--max-body-bytes", "1000"]);
    let to = router.address();
    let long = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "x".repeat(1_000));
    for (path, body, status, code) in [
        ("/v1/chat/completions", "{\"model\":", 400, "bad_request"),
        ("/v1/chat/completions", "[]", 400, "bad_request"),
        ("/v1/chat/completions", "{\"model\":7}", 400, "bad_request"),
        ("/v1/completions", &long, 413, "body_too_large"),
        ("/v1/completions", "{\"model\":\"other\"}", 503, "no_worker"),
        ("/v1/nothing", "{}", 404, "not_found"),
        ("/v1/models", "{}", 405, "method_not_allowed"),
    ] {
        let mut reply = post(to, path, &[], body);
        assert_eq!(reply.status, status, "{path} {body}");
        assert_eq!(reply.code(), code, "{path} {body}");
    }
    assert_eq!(worker.seen().len(), 0);
    // What a worker says is passed on as it is, and nobody else is asked.
    for status in [400, 404, 422] {
        worker.answer(whole(status, &[("x-why", "w")], "{\"object\":\"error\"}"));
        let mut reply = ask(to);
        assert_eq!((reply.status, reply.header("x-why")), (status, Some("w")));
        assert_eq!(reply.text(), "{\"object\":\"error\"}");
    }
    assert_eq!(worker.seen().len(), 3);
}

#[test]
fn before_the_first_byte_another_worker_is_asked() {
    let (bad, good) = (Worker::start(), Worker::start());
    let mut router = Router::for_workers(&[&bad, &good], &["--breaker-failure-threshold", "0"]);
    router.announce(NO_ANSWER);
    let faults = [
        ("500", whole(500, &[], "{}")),
        ("503", whole(503, &[], "{}")),
        ("429", whole(429, &[("retry-after", "7")], "{}")),
        ("no head", vec![Step::Cut]),
        ("a head alone", vec![stream_head(), Step::Cut]),
        ("an empty stream", vec![stream_head(), Step::End]),
    ];
    let count = faults.len();
    for (name, fault) in faults {
        bad.answer(fault);
        // Whoever's turn it is: twice, so that the bad one is first once.
        for _ in 0..2 {
            assert_eq!(ask(router.address()).rest().unwrap(), body_of(&chat_stream(3)), "{name}");
        }
    }
    assert_eq!((bad.seen().len(), good.seen().len()), (count, 2 * count));
    let body = good.seen().pop().unwrap().body;
    assert_eq!(String::from_utf8(body).unwrap(), CHAT);
    let retries =
        |reason: &str| router.count(&format!("infera_router_retries_total{{reason=\"{reason}\"}}"));
    assert_eq!((retries("5xx"), retries("429"), retries("lost")), (2, 1, 3));
    // A worker that is not there at all.
    let address = bad.address();
    bad.kill();
    for _ in 0..2 {
        assert_eq!(ask(router.address()).status, 200, "without {address}");
    }
}

#[test]
fn a_worker_that_answers_out_of_turn_is_not_passed_on() {
    let worker = Worker::start();
    let mut router = Router::for_workers(&[&worker], &[]);
    router.announce(NO_ANSWER);
    worker.answer(vec![Step::Head(101, headers(&[("upgrade", "x"), ("connection", "upgrade")]))]);
    assert_eq!(ask(router.address()).code(), "worker_unreachable");
}

#[test]
fn chunks_count_for_more_than_a_length_beside_them() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &[]);
    let both = headers(&[("content-length", "2"), ("transfer-encoding", "chunked")]);
    let chunks = b"5\r\nabcde\r\n0\r\n\r\n".to_vec();
    worker.answer(vec![Step::Head(200, both), Step::Bytes(chunks), Step::End]);
    assert_eq!(ask(router.address()).rest().unwrap(), b"abcde");
}

#[test]
fn without_a_better_one_the_last_answer_is_passed_on() {
    let workers = [Worker::start(), Worker::start()];
    let mut router =
        Router::for_workers(&workers.each_ref(), &["--breaker-failure-threshold", "0"]);
    router.announce(NO_ANSWER);
    for worker in &workers {
        worker.answer(whole(429, &[("retry-after", "7")], "{\"busy\":true}"));
    }
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")));
    assert_eq!(reply.text(), "{\"busy\":true}");
    assert_eq!(workers.each_ref().map(|worker| worker.seen().len()), [1, 1]);
    // Also if the one after it does not answer.
    workers[0].answer(whole(500, &[], "{\"broken\":true}"));
    workers[1].answer(vec![Step::Cut]);
    for _ in 0..2 {
        let mut reply = ask(router.address());
        assert_eq!((reply.status, reply.text().as_str()), (500, "{\"broken\":true}"));
    }
    for worker in &workers {
        worker.answer(vec![Step::Cut]);
    }
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.code().as_str()), (502, "worker_unreachable"));
}

#[test]
fn the_number_of_retries_is_bounded() {
    let workers = [Worker::start(), Worker::start(), Worker::start()];
    for worker in &workers {
        worker.answer(whole(500, &[], "{}"));
    }
    let asked = || workers.iter().map(|worker| worker.seen().len()).sum::<usize>();
    for (retries, attempts) in [("0", 1), ("1", 2), ("2", 3), ("9", 3)] {
        let before = asked();
        let router = Router::for_workers(&workers.each_ref(), &["--request-max-retries", retries]);
        assert_eq!(ask(router.address()).status, 500);
        assert_eq!(asked() - before, attempts, "{retries}");
    }
}

#[test]
fn workers_that_are_not_there_use_up_no_retries() {
    let workers = [Worker::start(), Worker::start(), Worker::start()];
    let more = ["--request-max-retries", "1", "--breaker-failure-threshold", "0"];
    let mut router = Router::for_workers(&workers.each_ref(), &more);
    router.announce(NO_ANSWER);
    let [gone, gone_too, there] = workers;
    gone.kill();
    gone_too.kill();
    // Whoever's turn it is: three times, so that both come first once.
    for _ in 0..3 {
        assert_eq!(ask(router.address()).rest().unwrap(), body_of(&chat_stream(3)));
    }
    // What was sent is another matter.
    there.answer(vec![Step::Cut]);
    assert_eq!(ask(router.address()).code(), "worker_unreachable");
}

#[test]
fn after_the_first_byte_nothing_is_asked_twice() {
    let workers = [Worker::start(), Worker::start()];
    let mut router = Router::for_workers(&workers.each_ref(), &["--request-max-retries", "3"]);
    router.announce(CUT_OFF);
    let whole_event = event("x");
    for (name, last, wants_close) in [
        ("between events", Step::Bytes(b"data: {}\n\n".to_vec()), false),
        ("within an event", Step::Bytes(b"data: {\"a\":".to_vec()), true),
    ] {
        for end in [Step::Cut, Step::End] {
            let steps = vec![stream_head(), Step::Bytes(whole_event.clone()), last.clone(), end];
            workers.iter().for_each(|worker| worker.answer(steps.clone()));
            let asked = workers.iter().map(|worker| worker.seen().len()).sum::<usize>();
            // The stream ends well as far as HTTP goes.
            let body = ask(router.address()).text();
            let (before, error) = interruption(&body);
            let close = if wants_close { "\n\n" } else { "" };
            let relayed = String::from_utf8(body_of(&steps)).unwrap();
            assert_eq!(before, format!("{relayed}{close}"), "{name}");
            assert_eq!(error["error"]["code"], "stream_interrupted");
            assert!(!body.contains("[DONE]"));
            let now = workers.iter().map(|worker| worker.seen().len()).sum::<usize>();
            assert_eq!(now - asked, 1, "{name}");
        }
    }
    assert_eq!(router.count("infera_router_interrupted_total{reason=\"worker\"}"), 4);
    // Where no event can say so the connection is cut.
    let cut = vec![
        Step::Head(200, headers(&[("content-length", "10")])),
        Step::Bytes(b"{".to_vec()),
        Step::Cut,
    ];
    workers.iter().for_each(|worker| worker.answer(cut.clone()));
    ask(router.address()).rest().unwrap_err();
    // Nor where the events are encoded: what came is what goes.
    let encoded = Step::Head(
        200,
        headers(&[("content-type", "text/event-stream"), ("content-encoding", "gzip")]),
    );
    let encoded = vec![encoded, Step::Bytes(vec![0x1f, 0x8b, 8]), Step::End];
    workers.iter().for_each(|worker| worker.answer(encoded.clone()));
    assert_eq!(ask(router.address()).rest().unwrap(), [0x1f, 0x8b, 8]);
    // Embeddings and responses end without the mark.
    let events = vec![stream_head(), Step::Bytes(event("x")), Step::End];
    workers.iter().for_each(|worker| worker.answer(events.clone()));
    let mut reply = post(router.address(), "/v1/responses", &[], CHAT);
    assert_eq!(reply.rest().unwrap(), body_of(&events));
}

#[test]
fn a_worker_with_faults_in_a_row_is_left_alone_and_tried_again() {
    let (bad, good) = (Worker::start(), Worker::start());
    bad.answer(whole(500, &[], "{}"));
    let options = ["--breaker-failure-threshold", "3", "--breaker-cooldown-s", "1"];
    let router = Router::for_workers(&[&bad, &good], &options);
    for _ in 0..20 {
        assert_eq!(ask(router.address()).status, 200);
    }
    let state = format!("infera_router_worker_breaker_state{{worker_id=\"{}\"}}", bad.address());
    assert!(bad.seen().len() >= 3);
    assert!(router.count(&state) > 0);
    bad.answer(chat_stream(3));
    until("it is believed again", PATIENCE, || {
        ask(router.address()).rest().unwrap();
        (router.count(&state) == 0).then_some(())
    });
    let trips =
        format!("infera_router_worker_breaker_trips_total{{worker_id=\"{}\"}}", bad.address());
    assert!(router.count(&trips) >= 1);
    let before = bad.seen().len();
    (0..4).for_each(|_| assert_eq!(ask(router.address()).status, 200));
    assert_eq!(bad.seen().len() - before, 2);
}

#[test]
fn if_all_are_left_alone_all_are_asked() {
    let worker = Worker::start();
    worker.answer(whole(500, &[], "{}"));
    let router = Router::for_workers(&[&worker], &["--breaker-failure-threshold", "1"]);
    assert_eq!(ask(router.address()).status, 500);
    worker.answer(chat_stream(1));
    assert_eq!(ask(router.address()).status, 200);
    assert_eq!(worker.seen().len(), 2);
}

#[test]
fn the_worker_sees_within_a_second_that_a_client_left() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &[]);
    // In the middle of a stream.
    worker.answer_once(vec![stream_head(), Step::Bytes(event("x")), Step::Hold]);
    let mut reply = ask(router.address());
    reply.chunk().unwrap();
    drop(reply);
    let left_at = Instant::now();
    let seen = until("the worker is left", PATIENCE, || worker.left().pop());
    assert!(seen.saturating_duration_since(left_at) < Duration::from_secs(1));
    // Before the head of an answer.
    worker.answer_once(vec![Step::Hold]);
    let mut stream = TcpStream::connect(router.address()).unwrap();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{CHAT}",
        CHAT.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    until_true("the worker is asked", || worker.seen().len() == 2);
    drop(stream);
    let left_at = Instant::now();
    let seen = until("the worker is left", PATIENCE, || worker.left().get(1).copied());
    assert!(seen.saturating_duration_since(left_at) < Duration::from_secs(1));
    until_true("nothing is in flight", || router.in_flight() == 0);
    // Nobody's fault: the worker is asked again.
    assert_eq!(ask(router.address()).status, 200);
}

#[test]
fn a_silent_worker_is_reported_and_given_up_if_that_is_wanted() {
    let worker = Worker::start();
    let options = ["--stream-admission-warn-s", "0.2", "--stream-stall-warn-s", "0.2"];
    let mut router = Router::for_workers(&[&worker], &options);
    router.announce("an answer has");
    let pause = || Step::Pause(Duration::from_millis(600));
    worker.answer(vec![
        pause(),
        stream_head(),
        Step::Bytes(event("x")),
        pause(),
        Step::Bytes(b"data: [DONE]\n\n".to_vec()),
        Step::End,
    ]);
    assert!(ask(router.address()).text().ends_with("data: [DONE]\n\n"));
    for phase in ["admission", "stall"] {
        assert_eq!(router.count(&format!("infera_router_silences_total{{phase=\"{phase}\"}}")), 1);
    }
    drop(router);
    let mut router = Router::for_workers(&[&worker], &["--http-req-idle-timeout-s", "0.3"]);
    router.announce(CUT_OFF);
    worker.answer(vec![Step::Hold]);
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.code().as_str()), (504, "upstream_timeout"));
    worker.answer(vec![stream_head(), Step::Bytes(event("x")), Step::Hold]);
    let body = ask(router.address()).text();
    assert_eq!(interruption(&body).1["error"]["code"], "stream_interrupted");
    until_true("the worker is left both times", || worker.left().len() == 2);
}

#[test]
fn a_head_goes_out_alone_after_a_while() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &[]);
    let late = vec![
        stream_head(),
        Step::Pause(Duration::from_secs(7)),
        Step::Bytes(b"data: [DONE]\n\n".to_vec()),
        Step::End,
    ];
    worker.answer(late);
    let asked_at = Instant::now();
    let mut reply = ask(router.address());
    let head_after = asked_at.elapsed();
    assert_eq!((reply.status, reply.text().as_str()), (200, "data: [DONE]\n\n"));
    assert!(head_after < asked_at.elapsed() - Duration::from_millis(500), "{head_after:?}");
}

#[test]
fn a_drain_lets_answers_end() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &["--shutdown-delay-s", "1"]);
    let slow: Vec<Step> = chat_stream(30)
        .into_iter()
        .flat_map(|step| [step, Step::Pause(Duration::from_millis(100))])
        .collect();
    worker.answer(slow.clone());
    let mut reply = ask(router.address());
    reply.chunk().unwrap();
    router.signal(Signal::SIGTERM);
    // Not ready at once, but serving for as long as that was asked for.
    until_true("it says so", || get(router.address(), "/ready").0 == 503);
    assert_eq!(get(router.address(), "/live").0, 200);
    until_true("it refuses", || send(router.address(), "GET", "/live", &[], "").is_err());
    let first = event("piece 0");
    assert!(reply.rest().unwrap() == body_of(&slow)[first.len()..]);
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn a_drain_ends_what_takes_too_long() {
    let worker = Worker::start();
    let mut router = Router::for_workers(&[&worker], &["--drain-timeout-s", "1"]);
    router.announce(CUT_OFF);
    router.announce("the drain timeout is over");
    worker.answer_once(vec![stream_head(), Step::Bytes(event("x")), Step::Hold]);
    worker.answer_once(vec![Step::Hold]);
    let mut streaming = ask(router.address());
    streaming.chunk().unwrap();
    let address = router.address();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let mut reply = ask(address);
            (reply.status, reply.code())
        });
        until_true("both are on their way", || worker.seen().len() == 2);
        router.signal(Signal::SIGTERM);
        waiting.join().unwrap()
    });
    assert_eq!(waiting, (503, "shutting_down".to_owned()));
    let body = streaming.text();
    assert_eq!(interruption(&body).1["error"]["code"], "stream_interrupted");
    assert_eq!(router.wait().code(), Some(0));
    until_true("the worker is left both times", || worker.left().len() == 2);
}

#[test]
fn a_drain_ends_what_never_pauses() {
    let worker = Worker::start();
    let mut router = Router::for_workers(&[&worker], &["--drain-timeout-s", "1"]);
    router.announce(CUT_OFF);
    router.announce("the drain timeout is over");
    worker.answer(vec![stream_head(), Step::Flood(event("x"))]);
    let mut reply = ask(router.address());
    reply.chunk().unwrap();
    router.signal(Signal::SIGTERM);
    let mut last = Vec::new();
    loop {
        let chunk = reply.chunk().unwrap();
        if chunk.is_empty() {
            break;
        }
        last = chunk;
    }
    let last = String::from_utf8(last).unwrap();
    assert_eq!(interruption(&last).1["error"]["code"], "stream_interrupted");
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let worker = Worker::start();
    let router = Router::for_workers(&[&worker], &["--drain-timeout-s", "600"]);
    worker.answer(vec![stream_head(), Step::Bytes(event("x")), Step::Hold]);
    let mut reply = ask(router.address());
    reply.chunk().unwrap();
    router.signal(Signal::SIGINT);
    let _said = router.log().wait_for("draining");
    router.signal(Signal::SIGTERM);
    assert_eq!(router.wait().code(), Some(1));
}

#[test]
fn many_streams_at_once_are_whole_and_leave_nothing_behind() {
    let workers = [Worker::start(), Worker::start()];
    let router = Router::for_workers(&workers.each_ref(), &[]);
    let stream = chat_stream(50);
    workers.iter().for_each(|worker| worker.answer(stream.clone()));
    let wanted = body_of(&stream);
    let round = || {
        std::thread::scope(|scope| {
            let streams: Vec<_> = (0..64)
                .map(|_| scope.spawn(|| ask(router.address()).rest().unwrap() == wanted))
                .collect();
            streams.into_iter().for_each(|stream| assert!(stream.join().unwrap()));
        });
    };
    round();
    let settled = || router.in_flight() == 0;
    until_true("all is over", settled);
    let before = router.facts().descriptors;
    (0..4).for_each(|_| round());
    until_true("descriptors are given back", || router.facts().descriptors <= before);
    let done = "infera_request_duration_seconds_count{router=\"mixed\",outcome=\"ok\"}";
    assert_eq!(router.count(done), 320);
}

#[test]
fn a_wrong_command_line_is_refused_before_anything_is_served() {
    for arguments in [
        &["--no-such-flag", "1"][..],
        &["--discovery-backend", "kubernetes"],
        &["--worker", "10.0.0.1:8000"],
        &["--breaker-cooldown-s", "soon"],
    ] {
        let ended = run(arguments);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains(arguments[0]), "{said}");
    }
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("--request-max-retries"));
}
