//! The C ABI as C programs see it: the built libraries and the checked-in header, against the real daemon, plainly and
//! under valgrind. The programs are in `shim/tests/c`, and in the guide.

#![expect(clippy::expect_used, reason = "a case stops at the first surprise")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kvd_tests::{Daemon, Launch, binaries};
use tempfile::TempDir;

/// `everything.c` knows how large the arena is.
const ARENA: &[&str] = &["--max-bytes", "64M"];

/// Warnings are errors: the header goes into other people's builds.
const STRICT: &[&str] = &["-g", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];

/// Memory errors and lost memory are failures, in forked children too.
const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--fair-sched=yes",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

fn of_checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder for what is built")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("starting a tool");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Which of the two libraries a program gets.
#[derive(Clone, Copy)]
enum Linked {
    Shared,
    Static,
}

/// Builds a program of C or C++ sources in `folder`.
fn build(
    folder: &TempDir,
    compiler: &str,
    standard: &str,
    sources: &[PathBuf],
    linked: Linked,
) -> PathBuf {
    let program = folder.path().join("program");
    let mut command = Command::new(compiler);
    command.arg(standard).args(STRICT).arg("-I").arg(of_checkout("shim/include"));
    command.args(sources).arg("-o").arg(&program);
    match linked {
        Linked::Shared => {
            let library = binaries::path_of("libinfera_kvd.so");
            let at = library.parent().expect("it lies in a folder").display().to_string();
            command.arg(format!("-L{at}")).arg("-linfera_kvd").arg(format!("-Wl,-rpath,{at}"));
        }
        Linked::Static => {
            command.arg(binaries::path_of("libinfera_kvd.a"));
            command.args(["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"]);
        }
    }
    run(command.arg("-lpthread"));
    program
}

fn test_program(folder: &TempDir, linked: Linked) -> PathBuf {
    let cases = ["main", "everything", "misuse", "threads", "forks", "outage"];
    let sources = cases.map(|case| of_checkout(&format!("shim/tests/c/{case}.c")));
    build(folder, "cc", "-std=c11", &sources, linked)
}

fn under(wrapper: &[&str], program: &Path) -> Command {
    match wrapper {
        [] => Command::new(program),
        [tool, options @ ..] => {
            let mut command = Command::new(tool);
            command.args(options).arg(program);
            command
        }
    }
}

/// Runs cases of the test program against one daemon, and sees to it that they leave nothing held.
fn run_cases(wrapper: &[&str], linked: Linked, cases: &[&str]) {
    let folder = folder();
    let program = test_program(&folder, linked);
    let daemon = Daemon::start(ARENA);
    for case in cases {
        let mut command = under(wrapper, &program);
        command.arg(daemon.socket()).arg(case).env("INFERA_KVD_SOCKET", daemon.socket());
        assert_eq!(run(&mut command), "done\n");
    }
    kvd_tests::until::until_true("the return of all rights", || {
        let held = &daemon.admin_json("/v1/stats")["held"];
        held["leases"] == 0 && held["tickets"] == 0
    });
}

#[test]
fn a_c_program_uses_and_misuses_everything() {
    let cases = ["everything", "misuse", "threads", "forks", "forks_while_busy"];
    run_cases(&[], Linked::Shared, &cases);
}

#[test]
fn a_c_program_is_clean_under_valgrind() {
    // What the threads of a parent own is lost to a child, so there is no leak check of `forks_while_busy`.
    run_cases(VALGRIND, Linked::Shared, &["everything", "misuse", "threads", "forks"]);
}

#[test]
fn a_c_program_can_have_the_library_in_itself() {
    run_cases(&[], Linked::Static, &["everything", "threads"]);
}

/// A program of the case `outage`, which says when the daemon has to go and to come back.
struct Talking {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Talking {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starting the program");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, said }
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn tell_done(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"done\n").expect("it listens");
    }
}

fn run_outage(wrapper: &[&str]) {
    let folder = folder();
    let program = test_program(&folder, Linked::Shared);
    let home = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").expect("a folder");
    let socket = home.path().join("kvd.sock");
    let start = || Launch::new().args(ARENA.iter().copied()).socket(&socket).start();
    let daemon = start();
    let mut command = under(wrapper, &program);
    command.arg(&socket).arg("outage");
    let mut talking = Talking::start(command);
    assert_eq!(talking.says(), "kill");
    daemon.kill();
    talking.tell_done();
    assert_eq!(talking.says(), "start");
    let _daemon = start();
    talking.tell_done();
    assert_eq!(talking.says(), "done");
    assert!(talking.child.wait().expect("its end").success());
}

#[test]
fn a_c_program_outlives_its_daemon() {
    run_outage(&[]);
}

#[test]
fn a_c_program_outlives_its_daemon_under_valgrind() {
    run_outage(VALGRIND);
}

#[test]
fn valgrind_would_find_an_error_and_a_leak() {
    let folder = folder();
    let source = folder.path().join("broken.c");
    let broken = [
        "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(8); char c = p[8]; free((void *)p); return c & 0; }\n",
        "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(8); p = NULL; return p != NULL; }\n",
    ];
    for text in broken {
        std::fs::write(&source, text).expect("writing it");
        let program = folder.path().join("broken");
        run(Command::new("cc").arg(&source).arg("-o").arg(&program));
        let found = under(VALGRIND, &program).output().expect("starting valgrind");
        assert_eq!(found.status.code(), Some(9), "{text}");
    }
}

#[test]
fn the_header_is_also_cpp_and_any_c() {
    let folder = folder();
    let cpp = [of_checkout("shim/tests/c/header.cpp")];
    run(&mut Command::new(build(&folder, "c++", "-std=c++17", &cpp, Linked::Shared)));
    let alone = folder.path().join("alone.c");
    std::fs::write(&alone, "#include \"infera_kvd.h\"\nint main(void) { return 0; }\n")
        .expect("writing it");
    for standard in ["-std=c99", "-std=c17", "-std=c2x"] {
        build(&folder, "cc", standard, std::slice::from_ref(&alone), Linked::Shared);
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let library = binaries::path_of("libinfera_kvd.so");
    let symbols = run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&library));
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().next_back()).collect();
    let header =
        std::fs::read_to_string(of_checkout("shim/include/infera_kvd.h")).expect("the header");
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    assert!(
        declared.contains("kvd_attach") && declared.iter().all(|name| name.starts_with("kvd_"))
    );
    assert_eq!(exported, declared);
    let facts = run(Command::new("readelf").arg("--dynamic").arg(&library));
    assert!(facts.contains("Library soname: [libinfera_kvd.so]"), "{facts}");
}

#[test]
fn the_guide_s_example_works_as_it_stands() {
    let guide = std::fs::read_to_string(of_checkout("docs/c-api.md")).expect("the guide");
    let example = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let folder = folder();
    let source = folder.path().join("example.c");
    std::fs::write(&source, example.expect("an example")).expect("writing it");
    let program = build(&folder, "cc", "-std=c11", &[source], Linked::Shared);
    let without = run(Command::new(&program).env("INFERA_KVD_SOCKET", "/nowhere/kvd.sock"));
    assert!(without.contains("no daemon at /nowhere/kvd.sock"), "{without}");
    let daemon = Daemon::start(ARENA);
    let with = run(Command::new(&program).env("INFERA_KVD_SOCKET", daemon.socket()));
    assert_eq!(with, "computing 2 of 2 blocks\ncomputing 0 of 2 blocks\n");
}
