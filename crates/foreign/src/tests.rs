//! Every reader against what its tool printed, and every writer against its reader.

use super::*;
use proptest::prelude::*;
use quiet_judge::example;
use quiet_types::{Nanos, run::Measured};

fn fixture(name: &str) -> String {
    std::fs::read_to_string(quiet_testing::tree::fixture("results").join(name)).unwrap()
}

/// Files that are written again byte for byte.
const EQUAL: [(&str, Format); 25] = [
    ("latmus-x86-beyond.txt", Format::Latmus),
    ("latmus-vim3l-idle.txt", Format::Latmus),
    ("latmus-vim3l-hectic-200us.txt", Format::Latmus),
    ("latmus-vim3l-hectic-10us-cache.txt", Format::Latmus),
    ("latmus-vim3l-hectic-10us-cache-ping.txt", Format::Latmus),
    ("cyclictest-corei7-cpu0.txt", Format::Cyclictest),
    ("cyclictest-corei7-cpu2.txt", Format::Cyclictest),
    ("cyclictest-summary.txt", Format::Cyclictest),
    ("cyclictest-histogram.txt", Format::CyclictestHistogram),
    ("cyclictest-sums.txt", Format::CyclictestHistogram),
    ("cyclictest.json", Format::CyclictestJson),
    ("oslat.txt", Format::Oslat),
    ("oslat.json", Format::OslatJson),
    ("rtla-timerlat-hist.txt", Format::Rtla),
    ("rtla-6.12-kernel.txt", Format::Rtla),
    ("rtla-6.12-user.txt", Format::Rtla),
    ("rtla-6.12-one.txt", Format::Rtla),
    ("rtla-6.12-zeros.txt", Format::Rtla),
    ("rtla-6.12-no-irq.txt", Format::Rtla),
    ("rtla-6.12-no-thread.txt", Format::Rtla),
    ("rtla-6.12-nano.txt", Format::Rtla),
    ("rtla-6.12-stopped.txt", Format::Rtla),
    ("rtla-6.12-osnoise.txt", Format::Rtla),
    ("rtla-analysis.txt", Format::RtlaAnalysis),
    ("jitterdebugger.json", Format::Jitterdebugger),
];

/// As latmus of an x86 kernel with EVL printed it, `-H 30`: `29+ 646`, all beyond the scale in the last cell.
#[test]
fn readings_beyond_latmus_scale_stand_in_the_cell_with_the_plus() {
    let text = fixture("latmus-vim3l-idle.txt");
    let (head, last) = text.trim_end().rsplit_once('\n').unwrap();
    let (cell, count) = last.split_once(' ').unwrap();
    let beyond = format!("{head}\n{cell}+ {count}\n");
    let run = read(&beyond, Format::Latmus).unwrap();
    let linear = run.threads[0].readings.linear.clone().unwrap();
    assert_eq!((linear.buckets.to_string(), linear.over.to_string()), (cell.into(), count.into()));
    assert_eq!(write(&run, Format::Latmus).unwrap().text, beyond);
    let twice = format!("{beyond}99 1\n");
    assert!(read(&twice, Format::Latmus).unwrap_err().to_string().contains("after the one"));
    let early = beyond.replace("1 52", "1+ 52");
    assert!(read(&early, Format::Latmus).is_err());
}

#[test]
fn what_a_tool_printed_is_told_by_its_content_and_written_again_byte_for_byte() {
    for (name, format) in EQUAL {
        let text = fixture(name);
        assert_eq!(detect(&text), Some(format), "{name}");
        let run = read(&text, format).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Through our own JSON, as a run is kept.
        let run: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        let again = write(&run, format).unwrap().text;
        assert_eq!(again, text, "{name}");
    }
}

#[test]
fn rtlas_sums_of_all_cpus_are_held_against_the_table() {
    let text = fixture("rtla-6.12-user.txt");
    let run = read(&text, Format::Rtla).unwrap();
    assert_eq!(run.threads.len(), 3);
    // The last station of each CPU; 10 ms are beyond the scale.
    let all = run.readings();
    assert_eq!(all.count, 1238 + 1212 + 1146);
    assert_eq!((all.min, all.max), (Some(Nanos(104_000)), Some(Nanos(9_795_000))));
    // An average follows from no table, so it is kept; all else is checked.
    for (line, other, why) in [
        ("count:     3596      3596", "count:     3596      3595", "other counts"),
        ("min:          8        53", "min:          9        53", "other counts or extremes"),
        ("max:       8531      9691", "max:       8531      9692", "other counts or extremes"),
        ("ALL:        IRQ       Thr       Usr\n", "ALL:        IRQ       Thr\n", "other columns"),
        ("ALL:        IRQ       Thr", "ALL:        IRQ       IRQ", "other columns"),
        ("ALL:        IRQ       Thr", "ALL:        IRQ       CPU", "other columns"),
        ("ALL:        IRQ       Thr", "ALL:        IRQ       all", "no column"),
        ("max:       8531      9691      9795 \n", "", "no end"),
        ("max:       8531      9691      9795 ", "max:       8531      9691", "number of columns"),
        ("avg:        701", "avg:        x", "no number"),
        ("min:          8        53", "MIN:          8        53", "no line"),
    ] {
        let wrong = text.replace(line, other);
        assert_ne!(wrong, text, "{line}");
        let error = read(&wrong, Format::Rtla).unwrap_err().to_string();
        assert!(error.contains(why), "{other}: {error}");
    }
    let twice = format!("{text}{}", &text[text.find("ALL:").unwrap()..]);
    assert!(read(&twice, Format::Rtla).unwrap_err().to_string().contains("stands once"));
    let two = format!("{text}{text}");
    assert!(read(&two, Format::Rtla).unwrap_err().to_string().contains("second histogram"));
    let average = text.replace("avg:        701", "avg:        702");
    assert_eq!(write(&read(&average, Format::Rtla).unwrap(), Format::Rtla).unwrap().text, average);
}

#[test]
fn what_rtla_leaves_out_by_an_option_is_named_where_it_is_needed() {
    let head =
        "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n# Duration:   0 00:00:02\n";
    let table = "0           100       200 \nover:         0         0 \n";
    for (text, why) in [
        // As 6.12 prints them.
        (format!("{head}Index   IRQ-001   Thr-001\n{table}"), "--no-summary"),
        (table.to_owned(), "--no-header"),
        (format!("{head}   IRQ-001   Thr-001\n      100       200 \n"), "--no-index"),
        (format!("{head}Index\nover: \ncount:\nmin:  \navg:  \nmax:  \n"), "measured nothing"),
        (
            "# RTLA osnoise histogram\nIndex\nover: 0\ncount: 0\nmin: 0\navg: 0\nmax: 0\n"
                .to_owned(),
            "measured nothing",
        ),
    ] {
        let error = read(&text, Format::Rtla).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn osnoises_histogram_is_of_gaps_with_fractions_in_its_averages() {
    let text = fixture("rtla-6.12-osnoise.txt");
    let run = read(&text, Format::Rtla).unwrap();
    assert!(run.is_gap());
    assert_eq!(run.origin.as_ref().unwrap().program, "rtla osnoise");
    assert!(text.contains(&format!("{:9} ", run.threads[0].obtained)));
    let mixed = text.replace("CPU-001", "IRQ-001");
    assert!(read(&mixed, Format::Rtla).unwrap_err().to_string().contains("and of osnoise"));
    // A run of gaps of our own is written as one of osnoise.
    let mut own = example::run();
    own.spec.probe = Measured::Gap;
    let written = write(&own, Format::Rtla).unwrap().text;
    assert!(written.starts_with("# RTLA osnoise histogram\n"), "{written:.60}");
    let back = read(&written, Format::Rtla).unwrap();
    let counted = |run: &Run| run.threads.iter().map(|one| one.readings.count).sum::<u64>();
    assert!(back.is_gap());
    assert_eq!(counted(&back), counted(&own));
}

#[test]
fn the_four_latmus_runs_are_those_of_their_headers() {
    for (name, count, min, average, max, p50) in [
        ("idle", 49_468, 52, 344, 8_575, 0),
        ("hectic-200us", 36_570, 6_554, 9_504, 13_850, 9_000),
        ("hectic-10us-cache", 39_489, 7_531, 14_013, 42_643, 13_000),
        ("hectic-10us-cache-ping", 39_882, 7_170, 13_763, 41_726, 13_000),
    ] {
        let text = fixture(&format!("latmus-vim3l-{name}.txt"));
        let run = read(&text, Format::Latmus).unwrap();
        let all = run.readings();
        assert_eq!(all.count, count, "{name}");
        assert_eq!((all.min, all.max), (Some(Nanos(min)), Some(Nanos(max))), "{name}");
        assert_eq!(all.mean(), Some(Nanos(average)), "{name}");
        let median = all.percentile(0.5).unwrap().0;
        assert!((p50..p50 + 1000).contains(&median), "{name}: p50 {median}");
        // The mean of the cells' middles lies within half a cell of the printed average.
        let cells = all.linear.as_ref().unwrap();
        let sum: u64 = cells.counts.iter().map(|(at, n)| (u64::from(*at) * 1000 + 500) * n).sum();
        assert!((sum / count).abs_diff(average) <= 500, "{name}: {}", sum / count);
        assert_eq!(run.spec.probe, Measured::Wakeup { interval: Some(Nanos::from_micros(1000)) });
        assert_eq!((run.spec.priority, run.threads[0].cpu.0), (Some(98), 3));
        assert_eq!(run.host.release, "5.15.0");
        assert_eq!(run.resolution(), Nanos(1000));
        assert!(run.started.as_ref().unwrap().starts_with("2021-12-22T1"), "{:?}", run.started);
    }
}

#[test]
fn cyclictests_hidden_overflow_is_computed() {
    let run = read(&fixture("cyclictest.json"), Format::CyclictestJson).unwrap();
    assert_eq!(run.lasted, None, "it began and ended within a second");
    let first = &run.threads[0].readings;
    assert_eq!((first.count, first.over), (300, 292));
    assert_eq!(first.max, Some(Nanos::from_micros(67)));
    assert!(run.findings.iter().any(|finding| finding.id == "import.over_scale"));
    // Percentiles among them are bounded by the largest, not taken from the scale.
    assert_eq!(first.percentile(0.5), Some(Nanos::from_micros(67)));
    let run = read(&fixture("cyclictest-histogram.txt"), Format::CyclictestHistogram).unwrap();
    assert_eq!(run.threads[1].readings.over, 289);
}

#[test]
fn a_command_line_with_quotes_is_read_all_the_same() {
    let text =
        fixture("cyclictest.json").replace("cyclictest -q", r#"cyclictest --unit "a \b" -q"#);
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
    let run = read(&text, Format::CyclictestJson).unwrap();
    assert_eq!(run.threads.len(), 2);
    assert!(run.label.contains(r#""a \b""#), "{}", run.label);
    // Written again, it is JSON.
    let again = write(&run, Format::CyclictestJson).unwrap().text;
    assert!(serde_json::from_str::<serde_json::Value>(&again).is_ok());
}

#[test]
fn bucket_keys_become_edges() {
    // cyclictest: 11 is [11, 12) us.
    let run = read(&fixture("cyclictest.json"), Format::CyclictestJson).unwrap();
    let lower = run.threads[1].readings.buckets.last().unwrap().0;
    assert!((11_000..12_000).contains(&lower), "{lower}");
    // oslat: 1 is [0, 1) us, 3 is [2, 3).
    let run = read(&fixture("oslat.json"), Format::OslatJson).unwrap();
    let all = &run.threads[0].readings;
    assert_eq!(all.linear.as_ref().unwrap().counts[0], (0, 16_935_080));
    let above = all.buckets.iter().filter(|(lower, _)| (2_000..3_000).contains(lower));
    assert_eq!(above.map(|bucket| bucket.1).sum::<u64>(), 41);
    // Its last bucket holds what is beyond.
    assert_eq!((all.over, all.max), (881, Some(Nanos::from_micros(80_066))));
    assert_eq!(run.spec.probe, Measured::Gap);
}

#[test]
fn rtlas_stations_are_never_mixed() {
    let run = read(&fixture("rtla-timerlat-hist.txt"), Format::Rtla).unwrap();
    assert_eq!(run.threads.len(), 2);
    let first = &run.threads[0];
    assert_eq!(first.readings.count, 60_000);
    assert_eq!(first.readings.max, Some(Nanos::from_micros(91)));
    assert_eq!(first.stations[0].name, "irq");
    assert_eq!(first.stations[0].readings.max, Some(Nanos::from_micros(75)));
    assert_eq!(run.readings().count, 120_000);
    assert_eq!(run.lasted, Some(Nanos::from_secs(60)));
}

#[test]
fn a_summary_has_no_percentiles() {
    let run = read(&fixture("cyclictest-corei7-cpu2.txt"), Format::Cyclictest).unwrap();
    let all = run.readings();
    assert_eq!((all.count, all.max), (10_000, Some(Nanos::from_micros(67))));
    assert_eq!(all.mean(), Some(Nanos::from_micros(42)));
    assert_eq!(all.percentile(0.5), None);
    assert_eq!(run.spec.priority, Some(99));
    assert!(run.findings.iter().any(|finding| finding.id == "import.summary"));
}

/// What a tool's file does not say is `null` in the JSON too: never `false`, 0 or a threshold that nobody named.
#[test]
fn what_a_file_does_not_say_is_null_and_nothing_is_computed_from_it() {
    // Format, whether it names: the interval, policy and priority, the missed periods, how long it measured, when.
    let says = [
        ("latmus-x86-beyond.txt", [true, true, true, true, true]),
        ("cyclictest-summary.txt", [true, true, false, true, false]),
        ("cyclictest-histogram.txt", [false, false, false, false, false]),
        ("cyclictest.json", [true, true, false, false, true]),
        ("oslat.txt", [false, true, true, true, false]),
        ("rtla-timerlat-hist.txt", [false, false, false, true, false]),
        ("rtla-analysis.txt", [false, false, false, false, false]),
        ("jitterdebugger.json", [false, false, false, false, false]),
    ];
    for (name, [interval, policy, missed, lasted, started]) in says {
        let text = fixture(name);
        let run = read(&text, detect(&text).unwrap()).unwrap();
        let json = serde_json::to_value(&run).unwrap();
        let thread = &json["threads"][0];
        for (value, known) in [
            (&json["spec"]["probe"]["interval"], interval),
            (&json["spec"]["policy"], policy),
            (&thread["scheduling"], policy),
            (&thread["missed"], missed),
            (&thread["expected"], missed),
            (&json["lasted"], lasted),
            (&json["started"], started),
        ] {
            assert_eq!(!value.is_null(), known, "{name}: {json}");
        }
        for never in [
            &json["spec"]["threshold"],
            &json["spec"]["idle"],
            &json["spec"]["length"],
            &json["interrupted"],
            &json["monotonic"],
            &json["clock"],
            &json["stress"],
            &thread["allowed"],
            &thread["memory_locked"],
            &thread["beyond"],
            &thread["stolen"],
        ] {
            assert!(never.is_null(), "{name}: {json}");
        }
        let all = run.readings();
        assert_eq!((run.share_beyond(&all), run.share_stolen()), (None, None), "{name}");
        assert_eq!(run.missed().is_some(), missed, "{name}");
        // A checkpoint apart, a run of ours has none of these.
        let ids: Vec<String> =
            quiet_judge::judge_run(&run).into_iter().map(|found| found.id).collect();
        for invented in
            ["run.policy", "run.affinity", "run.memory", "run.no_floor", "run.interrupted"]
        {
            assert!(!ids.iter().any(|id| id == invented), "{name}: {ids:?}");
        }
        // And what one format cannot be written without is not made up for another one.
        let latmus = write(&run, Format::Latmus).map(|written| written.text);
        match latmus {
            Ok(text) => assert!(text.contains("# sampling period: ") && (interval || run.is_gap())),
            Err(error) => assert!(!interval || run.threads.len() > 1, "{name}: {error}"),
        }
        let csv = write(&run, Format::Csv).unwrap().text;
        assert_eq!(csv.contains(",missed,,,"), missed, "{name}");
        let back = read(&csv, Format::Csv).unwrap();
        assert_eq!(
            (back.missed(), back.lasted, back.interval()),
            (run.missed(), run.lasted, run.interval())
        );
        assert_eq!(back.is_gap(), run.is_gap(), "{name}");
    }
}

#[test]
fn files_that_contradict_themselves_are_refused_with_a_sentence() {
    let latmus = fixture("latmus-vim3l-idle.txt");
    let hist = fixture("cyclictest-histogram.txt");
    let rtla = fixture("rtla-timerlat-hist.txt");
    for (text, format, why) in [
        (
            latmus.replace("1 52", "1 53"),
            Format::Latmus,
            "its header counts 49468 samples, its cells hold 49469",
        ),
        (latmus[..latmus.len() / 2].to_owned(), Format::Latmus, "is it cut short?"),
        (
            latmus.replace("avg latency: 0.344", "avg latency: 9.344"),
            Format::Latmus,
            "not in this order",
        ),
        (latmus.replace("1 52", "1 x"), Format::Latmus, "line 20: the count is `x`"),
        (latmus.replace("1 52", "4 52"), Format::Latmus, "cell 4 stands twice"),
        (
            hist.replace("000011 000004", "000011 000005"),
            Format::CyclictestHistogram,
            "not the sum of its buckets",
        ),
        (
            hist.lines()
                .take(10)
                .map(|line| {
                    format!(
                        "{line}
"
                    )
                })
                .collect(),
            Format::CyclictestHistogram,
            "is it cut short?",
        ),
        (rtla.replace("30000", "30001"), Format::Rtla, "not the sum of its buckets"),
        (
            fixture("cyclictest.json").replace("\"cycles\": 300", "\"cycles\": 3"),
            Format::CyclictestJson,
            "hold more than its cycles",
        ),
        (fixture("cyclictest.json")[..700].to_owned(), Format::CyclictestJson, "it is cut short"),
        (fixture("oslat.txt").replace("1475", ""), Format::Oslat, "another number of columns"),
        ("T: 0 (1) P:99".to_owned(), Format::Cyclictest, "line 1: a summary line is"),
        (String::new(), Format::Hdr, "it holds no measuring thread"),
    ] {
        let error = read(&text, format).unwrap_err().to_string();
        assert!(error.contains(why), "{format}: {error}");
    }
}

#[test]
fn csv_and_gnuplot_give_a_run_back_and_the_log_and_metrics_nearly() {
    let run = example::run();
    let all = &run.threads[0].readings;
    for format in [Format::Csv, Format::Gnuplot] {
        let text = write(&run, format).unwrap().text;
        assert_eq!(detect(&text), Some(format));
        let back = read(&text, format).unwrap();
        let mut known = all.clone();
        known.linear = None;
        assert_eq!(back.threads[0].readings, known, "{format}");
        assert_eq!(back.threads[0].missed, run.threads[0].missed);
        assert_eq!((back.spec.probe, back.lasted), (run.spec.probe, run.lasted));
    }
    for (format, finest) in [(Format::Hdr, 64), (Format::OpenMetrics, 4)] {
        let text = write(&run, format).unwrap().text;
        assert_eq!(detect(&text), Some(format), "{text:.300}");
        let back = read(&text, format).unwrap();
        let got = &back.threads[0].readings;
        assert_eq!(got.count, all.count);
        for q in [0.1, 0.5, 0.9, 0.99, 0.999] {
            let (a, b) = (all.percentile(q).unwrap().0, got.percentile(q).unwrap().0);
            assert!(a.abs_diff(b) <= a / finest + 2, "{format} {q}: {a} and {b}");
        }
    }
}

#[test]
fn every_run_of_ours_is_written_in_every_format_and_read_again() {
    let run = example::run();
    for (format, name) in FORMATS {
        assert_eq!(Format::from_name(name), Some(format));
        let written = match write(&run, format) {
            Ok(written) => written,
            Err(error) => {
                assert_eq!(format, Format::RtlaAnalysis, "{error}");
                continue;
            }
        };
        assert_eq!(detect(&written.text), Some(format), "{name}:\n{:.400}", written.text);
        let back = read(&written.text, format).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (mine, theirs) = (run.readings().max.unwrap().0, back.readings().max.unwrap().0);
        assert!(mine.abs_diff(theirs) <= 1000 + mine / 500, "{name}: {mine} and {theirs}");
        assert!(!written.lost.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_reader_falls_over_what_is_torn_or_bent(
        which in 0usize..EQUAL.len(), cut in 0usize..4000, at in 0usize..4000, byte in 32u8..127,
    ) {
        let (name, _) = EQUAL[which];
        let mut bytes = fixture(name).into_bytes();
        bytes.truncate(cut.max(1));
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes) {
            for (format, _) in FORMATS {
                if let Ok(run) = read(&text, format) {
                    let _ = write(&run, format);
                }
            }
        }
    }
}
