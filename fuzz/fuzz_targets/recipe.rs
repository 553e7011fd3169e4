//! Other tools' recipes: what is imported is a chain file, whatever it was; what is not, a sentence.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_plan::{
    chain,
    recipe::{RecipeFormat, detect, import},
};

fuzz_target!(|text: &str| {
    let _ = detect(text);
    for format in
        [RecipeFormat::Cset, RecipeFormat::Isolcpus, RecipeFormat::Rtirq, RecipeFormat::Tuned]
    {
        match import(text, format, "fuzzed") {
            Ok(chain) => {
                if let Err(why) = chain::parse(&chain, "imported.toml", None) {
                    panic!("{format:?} made of {text:?} a chain that is none: {why}\n{chain}");
                }
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
});
