-- Grain: a macro; the probability that a standard normal number exceeds x, for x >= 0 (see normal_cdf.sql).
CREATE OR REPLACE MACRO normal_tail(x) AS
    CASE
        WHEN x > 37 THEN 0.0::DOUBLE
        WHEN x < 7.07106781186547::DOUBLE THEN
            exp(-x * x / 2)
            * ((((((0.0352624965998911::DOUBLE * x + 0.700383064443688::DOUBLE) * x + 6.37396220353165::DOUBLE) * x
                + 33.912866078383::DOUBLE) * x + 112.079291497871::DOUBLE) * x + 221.213596169931::DOUBLE) * x
                + 220.206867912376::DOUBLE)
            / (((((((0.0883883476483184::DOUBLE * x + 1.75566716318264::DOUBLE) * x + 16.064177579207::DOUBLE) * x
                + 86.7807322029461::DOUBLE) * x + 296.564248779674::DOUBLE) * x + 637.333633378831::DOUBLE) * x
                + 793.826512519948::DOUBLE) * x + 440.413735824752::DOUBLE)
        ELSE
            exp(-x * x / 2) / 2.506628274631::DOUBLE
            / (x + 1 / (x + 2 / (x + 3 / (x + 4 / (x + 0.65::DOUBLE)))))
    END
