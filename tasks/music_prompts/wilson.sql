-- Grain: a macro; both ends of the 95 % interval of a share (Wilson 1927), as a struct of low and high.
CREATE OR REPLACE MACRO wilson(hits, asked) AS {
    'low': greatest(0.0, (hits / asked + 1.9207294103470867 / asked
        - 1.959963984540054 * sqrt(hits / asked * (1 - hits / asked) / asked + 0.9603647051735434 / (asked * asked)))
        / (1 + 3.8414588206941734 / asked)),
    'high': least(1.0, (hits / asked + 1.9207294103470867 / asked
        + 1.959963984540054 * sqrt(hits / asked * (1 - hits / asked) / asked + 0.9603647051735434 / (asked * asked)))
        / (1 + 3.8414588206941734 / asked))
}
