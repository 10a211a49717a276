//! Hands on where libsodium was built, which only build scripts are told.

fn main() {
    for part in ["LIB", "INCLUDE"] {
        let told = format!("DEP_SODIUM_{part}");
        let Ok(folder) = std::env::var(&told) else {
            panic!("libsodium-sys-stable did not say {told}");
        };
        println!("cargo::rerun-if-env-changed={told}");
        println!("cargo::rustc-env=SODIUM_{part}={folder}");
    }
}
