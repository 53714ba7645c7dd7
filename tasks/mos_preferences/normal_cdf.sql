-- Grain: a macro; the standard normal distribution function of one number, to about 1e-14.
--
-- DuckDB has no erf. Rational approximation of Hart (1968) in the double-precision form of G. West, "Better
-- approximations to cumulative normal functions" (2005); beyond 7.07 the tail's continued fraction.
CREATE OR REPLACE MACRO normal_cdf(z) AS
    CASE WHEN z > 0 THEN 1 - normal_tail(abs(z)) ELSE normal_tail(abs(z)) END
