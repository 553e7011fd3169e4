//! Balanced rows of steps that are on or off: Hadamard matrices.

/// The least order of a design for so many steps that can be made here; `None` above 63.
pub fn order_for(steps: usize) -> Option<usize> {
    (4..=64).step_by(4).find(|order| *order > steps && hadamard(*order).is_some())
}

/// A matrix of +1 and -1 whose columns are orthogonal, its first column all +1; `None` for an order that has no simple construction
/// here (52 among those up to 64), or is no multiple of 4.
///
/// Columns 1 and on are a two-level design: each step is on in half of the rows, and of any two steps each of the four states comes
/// as often. With every row's mirror image beside it, what a step does by itself is told apart from what two do together.
///
/// # Source
/// Paley: On orthogonal matrices, Journal of Mathematics and Physics 12, 1933; Plackett and Burman: The design of optimum
/// multifactorial experiments, Biometrika 33(4), 1946.
pub fn hadamard(order: usize) -> Option<Vec<Vec<i8>>> {
    if !order.is_multiple_of(4) || !(4..=256).contains(&order) {
        return (order == 2).then(|| vec![vec![1, 1], vec![1, -1]]);
    }
    let mut rows = if is_prime(order - 1) {
        paley(order - 1)
    } else if is_prime(order / 2 - 1) && (order / 2 - 1) % 4 == 1 {
        paley_doubled(order / 2 - 1)
    } else {
        doubled(&hadamard(order / 2)?)
    };
    for row in &mut rows {
        if row[0] < 0 {
            row.iter_mut().for_each(|value| *value = -*value);
        }
    }
    Some(rows)
}

fn is_prime(n: usize) -> bool {
    n > 2 && (2..n).take_while(|part| part * part <= n).all(|part| !n.is_multiple_of(part))
}

/// +1 where `n` is a square modulo the prime, -1 where it is none, 0 for 0.
fn legendre(n: usize, prime: usize) -> i8 {
    match n % prime {
        0 => 0,
        rest if (1..prime).any(|root| root * root % prime == rest) => 1,
        _ => -1,
    }
}

/// Rows bordered by ones around the squares modulo a prime; `mirror` is the sign of the left border.
fn bordered(prime: usize, mirror: i8) -> Vec<Vec<i8>> {
    let mut rows = vec![vec![1; prime + 1]];
    rows[0][0] = 0;
    for at in 0..prime {
        let one = |other: usize| legendre(prime + at - other, prime);
        rows.push([mirror].into_iter().chain((0..prime).map(one)).collect());
    }
    rows
}

/// Of order prime + 1, for a prime of 3 modulo 4.
fn paley(prime: usize) -> Vec<Vec<i8>> {
    let mut rows = bordered(prime, -1);
    for (at, row) in rows.iter_mut().enumerate() {
        row[at] += 1;
    }
    rows
}

/// Of order 2 (prime + 1), for a prime of 1 modulo 4.
fn paley_doubled(prime: usize) -> Vec<Vec<i8>> {
    let small = bordered(prime, 1);
    let cell = |value: i8, down: bool, right: bool| match (value, down, right) {
        (0, false, false) => 1,
        (0, ..) => -1,
        (value, true, true) => -value,
        (value, ..) => value,
    };
    let line = |row: &Vec<i8>, down: bool| -> Vec<i8> {
        row.iter().flat_map(|value| [cell(*value, down, false), cell(*value, down, true)]).collect()
    };
    small.iter().flat_map(|row| [line(row, false), line(row, true)]).collect()
}

/// Sylvester's doubling.
fn doubled(half: &[Vec<i8>]) -> Vec<Vec<i8>> {
    let line = |row: &Vec<i8>, sign: i8| -> Vec<i8> {
        row.iter().copied().chain(row.iter().map(|value| sign * value)).collect()
    };
    half.iter().map(|row| line(row, 1)).chain(half.iter().map(|row| line(row, -1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_up_to_64_but_52_is_balanced() {
        for order in (4..=64).step_by(4) {
            let Some(rows) = hadamard(order) else {
                assert_eq!(order, 52);
                continue;
            };
            assert_eq!(rows.len(), order);
            for (at, a) in rows.iter().enumerate() {
                assert!(a.len() == order && a[0] == 1 && a.iter().all(|v| v.abs() == 1), "{order}");
                for b in &rows[at + 1..] {
                    let product: i32 = a.iter().zip(b).map(|(a, b)| i32::from(a * b)).sum();
                    assert_eq!(product, 0, "order {order}");
                }
            }
            // Rows that are orthogonal have orthogonal columns: each step is on half of the time.
            for step in 1..order {
                assert_eq!(rows.iter().map(|row| i32::from(row[step])).sum::<i32>(), 0);
            }
        }
    }

    #[test]
    fn a_design_has_room_for_its_steps() {
        assert_eq!(order_for(3), Some(4));
        assert_eq!(order_for(9), Some(12));
        assert_eq!(order_for(12), Some(16));
        assert_eq!(order_for(51), Some(56));
        assert_eq!(order_for(63), Some(64));
        assert_eq!(order_for(64), None);
        assert_eq!(hadamard(10), None);
    }
}
