//! The names of blocks, against values that engines and the specification gave.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use kvd_proto::events::ExtraKeys;
use kvd_proto::pack::{Reader, Value};
use router_core::hash::vllm::Extra;
use router_core::hash::{BlockHasher, chain, put_extra, root, salt_of, sglang, vllm};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn range(tokens: core::ops::Range<u32>) -> Vec<u32> {
    tokens.collect()
}

#[test]
fn the_routers_hashes() {
    assert_eq!(chain(0, &[1, 2, 3, 4], 4), [0x3418_39ab_be30_be0b]);
    let two = [0x3418_39ab_be30_be0b, 0x37b6_de06_23bd_b5ca];
    assert_eq!(chain(0, &range(1..11), 4), two, "the rest below one block is ignored");
    let two = [0x24be_cc53_6130_3c06, 0xa075_f13e_a868_eebb];
    assert_eq!(chain(0, &range(0..40), 16), two);
    let large = [4_294_967_295, 0, 151_643, 200_019];
    assert_eq!(chain(0, &large, 4), [0x4532_9d38_cb2e_925f]);
    assert_eq!(chain(0, &large, 0), [0; 0]);
}

#[test]
fn adapters_and_salts_begin_elsewhere() {
    assert_eq!(root(None, None), 0);
    let adapted = root(Some("sql"), None);
    assert_eq!(adapted, 0x6ce1_e202_00e7_fc7b);
    assert_eq!(chain(adapted, &[1, 2, 3, 4], 4), [0x73d9_e46c_cec1_5134]);
    let salted = root(None, Some("t1"));
    assert_eq!(salted, 0x043c_37fc_15ae_4bb6);
    assert_eq!(chain(salted, &[1, 2, 3, 4], 4), [0xff51_3499_6972_a6d8]);
}

/// `keys`: encoded msgpack, a list per block.
fn with_keys(keys: &[u8], then: impl FnOnce(ExtraKeys<'_>)) {
    let Ok(Value::Array(items)) = Reader::new(keys).value() else { panic!("no list") };
    then(ExtraKeys::Frame(items));
}

#[test]
fn media_are_part_of_their_block() {
    // [[["img-abc", 0]]]
    with_keys(b"\x91\x91\x92\xa7img-abc\x00", |keys| {
        assert_eq!(salt_of(&keys, None), None);
        let mut extra = Vec::new();
        put_extra(&keys, 0, None, None, &mut extra);
        assert_eq!(extra, b"\x91\x92\xa7img-abc\x00");
        let block = BlockHasher::new().block(0, [1, 2, 3, 4], &extra);
        assert_eq!(block, 0x5ba1_37c5_e93c_8490);
    });
}

#[test]
fn the_salt_is_the_one_text_of_the_first_block_that_is_not_the_adapter() {
    // [["sql", "t1", ["img", 0]], ["sql"], nil]
    with_keys(b"\x93\x93\xa3sql\xa2t1\x92\xa3img\x00\x91\xa3sql\xc0", |keys| {
        let salt = salt_of(&keys, Some("sql"));
        assert_eq!(salt, Some("t1"));
        let extra = |block| {
            let mut extra = Vec::new();
            put_extra(&keys, block, Some("sql"), salt, &mut extra);
            extra
        };
        assert_eq!(extra(0), b"\x91\x92\xa3img\x00");
        assert_eq!((extra(1), extra(2), extra(3)), (vec![], vec![], vec![]));
        assert_eq!(salt_of(&keys, None), None, "two texts are no salt");
    });
}

#[test]
fn pages_of_sglang() {
    let pages = sglang::chain(&range(1..11), 4);
    let events: Vec<i64> = pages.iter().map(|bits| bits.cast_signed()).collect();
    assert_eq!(events, [-3_488_128_144_981_237_669, 5_674_439_469_042_975_057]);
    let first = sglang::page(None, &range(0..16));
    assert!(hex(&first).starts_with("5d85718ec594b982"));
    assert!(hex(&sglang::page(Some(&first), &range(16..32))).starts_with("4681c0107c38f402"));
}

#[test]
fn blocks_of_vllm() {
    let root = vllm::root("0");
    assert!(hex(&root).starts_with("4e1195df"));
    let digests = vllm::chain(&root, &range(1..9), 4, &[], &[]);
    let events: Vec<u64> = digests.iter().map(vllm::bits).collect();
    assert_eq!(events, [0x1e0b_2e02_8ef0_71cb, 0xefad_121d_154a_b2d6]);
    assert_eq!(hex(&vllm::chunk_key(&digests, 0)), "1bf9b04cbf796300");
}

/// The tokens of the first block of a live engine, as its hash input had them.
const LIVE_TOKENS: &str = "1833184718441\
8dc1850185418481842184a18dc18411851184e1856184d18dc1845184e185718dc18491854184c184f185218dc184e18551844185118dc1853";

#[test]
fn a_live_block_of_vllm() {
    let root = vllm::root("vllm-none-hash");
    assert_eq!(hex(&root), "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
    // Every token is below 256 and has two bytes.
    let tokens: Vec<u32> =
        unhex(LIVE_TOKENS).chunks_exact(2).map(|pair| u32::from(pair[1])).collect();
    assert_eq!((tokens.len(), &tokens[..8]), (32, &[51, 71, 68, 220, 80, 84, 72, 66][..]));
    let digest = vllm::block(&root, &tokens, &[]);
    assert_eq!(hex(&digest), "c3a286ae1aaf76d1aa3f115c04b01ea24695031bf4b20f39fe6be0f6fdb21a0a");
}

#[test]
fn extra_keys_of_vllm_come_before_the_end_of_the_hashed_bytes() {
    use sha2::{Digest as _, Sha256};
    // 83 5820 <zeros> 84 01 02 19012c 1a00011170 82 82 "lora" "a" 82 "cache_salt" "s"
    let tail = "84010219012c1a000111708282646c6f72616161826a63616368655f73616c746173";
    let input = [unhex("835820"), vec![0; 32], unhex(tail)].concat();
    let extra = [Extra::Pair("lora", "a"), Extra::Pair("cache_salt", "s")];
    let digest = vllm::block(&[0; 32], &[1, 2, 300, 70_000], &extra);
    assert_eq!(hex(&digest), hex(&Sha256::digest(&input)));
    let salted = vllm::chain(&[0; 32], &[1, 2, 3, 4], 2, &[], &[Extra::Text("s")]);
    let first = vllm::block(&[0; 32], &[1, 2], &[Extra::Text("s")]);
    assert_eq!(salted, [first, vllm::block(&first, &[3, 4], &[])], "the salt is the first block's");
}
