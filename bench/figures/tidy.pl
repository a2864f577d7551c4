#!/usr/bin/env perl
# Removes from SVG what gnuplot writes and nobody sees: groups without content, definitions that nothing uses, a second
# element around each text; so the picture stays the same. What is committed under docs/ and examples/ goes through it.
# usage: tidy.pl FILE...
use strict;
use warnings;

for my $file (@ARGV) {
    open(my $in, '<', $file) or die "cannot read $file\n";
    my $svg = do { local $/; <$in> };
    $svg =~ s{<title>Gnuplot</title>\n*|<desc>Produced by GNUPLOT[^<]*</desc>\n*}{}g;
    $svg =~ s{<text><tspan font-family="[^"]*" ?>([^<]*)</tspan></text>}{<text>$1</text>}g;
    $svg =~ s{>\s*<text>([^<]*)</text>\s*</g>}{><text>$1</text></g>}g;
    1 while $svg =~ s{<g\b[^<>]*>\s*</g>\s*}{}g;
    # Groups of one look, one after the other, are one group.
    1 while $svg =~ s{(<g fill="none" [^<>]*>)((?:(?!</?g\b).|<g transform=[^<>]*><text>[^<]*</text></g>)*?)</g>\s*\1}{$1$2}gs;
    # A definition may be used by another one, so until none is left.
    for (my $gone = 1; $gone; ) {
        $gone = 0;
        for my $id ($svg =~ /\bid=['"](\w+)['"]/g) {
            next if $svg =~ /(?:href=['"]|url\()#$id\b/ || $svg !~ /<(?:circle|path|rect|use)\b[^<>]*\bid=['"]$id['"]|<filter\b[^<>]*\bid=['"]$id['"]/;
            $gone ||= $svg =~ s{[ \t]*<(circle|path|rect|use)\b[^<>]*\bid=['"]$id['"][^<>]*/>\n?}{};
            $gone ||= $svg =~ s{[ \t]*<filter\b[^<>]*\bid=['"]$id['"].*?</filter>\n?}{}s;
        }
    }
    $svg =~ s{<defs>\s*</defs>\n*}{};
    $svg =~ s{\n\s*\n}{\n}g;
    open(my $to, '>', $file) or die "cannot write $file\n";
    print $to $svg;
}
