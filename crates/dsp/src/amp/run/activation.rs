//! Activations of whole rows, to the last bits: those that no kernel has inside.

use super::{super::net::Activation, CHUNK, memory::Planes};
use crate::simd::{amp_wave as wave, lanes::Kernel, sigmoid::Sigmoid};

/// Applies an activation to the first `rows` rows.
pub(super) fn activate(
    kernel: Kernel,
    activation: &Activation,
    planes: &mut Planes,
    rows: usize,
    frames: usize,
) {
    for row in 0..rows {
        activate_row(kernel, activation, row, &mut planes.row_mut(row)[..frames]);
    }
}

/// `frames` is a multiple of [`STEP`].
pub(super) fn activate_row(
    kernel: Kernel,
    activation: &Activation,
    channel: usize,
    row: &mut [f32],
) {
    let each = |row: &mut [f32], f: &dyn Fn(f32) -> f32| {
        for x in row.iter_mut() {
            *x = f(*x);
        }
    };
    let leaky = |row: &mut [f32], slope: f32| {
        for x in row.iter_mut() {
            *x = if *x > 0.0 { *x } else { slope * *x };
        }
    };
    match activation {
        Activation::Identity => {}
        Activation::Tanh => kernel.run(wave::Tanh { data: row }),
        Activation::Sigmoid => sigmoid(kernel, row),
        Activation::Silu => {
            // Rows are at most a chunk long.
            let mut before = [0.0; CHUNK];
            let before = &mut before[..row.len()];
            before.copy_from_slice(row);
            sigmoid(kernel, row);
            for (y, x) in row.iter_mut().zip(before) {
                *y *= *x;
            }
        }
        Activation::FastTanh => each(row, &|x| {
            let (ax, x2) = (x.abs(), x * x);
            x * (2.455_507_5 + 2.455_507_5 * ax + (0.893_229_85 + 0.821_226_67 * ax) * x2)
                / (2.445_066_3 + (2.445_066_3 + x2) * (x + 0.814_642_7 * x * ax).abs())
        }),
        Activation::HardTanh => each(row, &|x| x.clamp(-1.0, 1.0)),
        Activation::Relu => leaky(row, 0.0),
        Activation::LeakyRelu(slope) => leaky(row, *slope),
        Activation::PRelu(slopes) => leaky(row, slopes.get(channel).copied().unwrap_or(0.0)),
        Activation::HardSwish => each(row, &|x| x * (x + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0)),
        Activation::LeakyHardTanh { least, most, below, above } => each(row, &|x| {
            if x < *least {
                (x - least) * below + least
            } else if x > *most {
                (x - most) * above + most
            } else {
                x
            }
        }),
        Activation::Softsign => each(row, &|x| x / (1.0 + x.abs())),
    }
}

fn sigmoid(kernel: Kernel, row: &mut [f32]) {
    kernel.run(Sigmoid { data: row });
}
