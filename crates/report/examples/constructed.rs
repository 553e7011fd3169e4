//! Prints the constructed proof and one of its runs, as text.

fn main() {
    print!("{}", quiet_report::proof_text(&quiet_report::example::proof(), 100));
    print!("\n{}", quiet_report::run_text(&quiet_report::example::run(), 100));
}
