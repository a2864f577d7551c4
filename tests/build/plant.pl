#!/usr/bin/env perl
# Reads the list of bugs for one header (tests/plants/HEADER.txt) or one source, and plants one of them.
#
#     plant.pl list FILE...                 a line for each: header TAB name TAB tests TAB hang|-
#     plant.pl apply FILE NAME DIRECTORY    plants it into DIRECTORY/HEADER.h (or .c), or says why it cannot
#     plant.pl apply_all FILE DIRECTORY     plants each bug into DIRECTORY/HEADER-NAME/, a copy of all headers of DIRECTORY; for one
#                                           that cannot be, the reason is in DIRECTORY/HEADER-NAME/plant.log
#
# A file begins with free text. Then each bug is
#
#     == name_of_the_bug
#     free text: why a programmer might make it
#     caught by property/htb_trees          a test; several lines: each of them must catch it
#     caught by adversary/htb share         the case `share` of a test whose cases have names (QOS_TEST_CASE)
#     a hang counts                         (optional) the bug makes a loop endless
#     in htb_priv_take                      (optional) the old text is searched in this function only
#     - old text, one line or several
#     + new text, none, one line or several
#
# with as many pairs of old and new text as needed. Old text is compared token by token: white space, line breaks and
# comments do not matter. It must occur exactly once. New text takes its place.
use strict;
use warnings;

sub slurp {
    open(my $f, '<', $_[0]) or die "cannot read $_[0]\n";
    local $/;
    my $text = <$f>;
    return $text;
}

# [token, begin, end] of C source, without comments. Those of the first long text are kept: all bugs of a header begin with it.
my ($kept_text, $kept) = ('');
sub tokens {
    my ($text) = @_;
    return $kept if $text eq $kept_text;
    my @list;
    while ($text =~ m{\G(?:\s+|\\\n|/\*.*?\*/|//[^\n]*|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\w+|[^\s\w]))}gsc) {
        push @list, [$1, $-[1], $+[1]] if defined $1;
    }
    ($kept_text, $kept) = ($text, \@list) if $kept_text eq '' && length $text > 10000;
    return \@list;
}

sub bugs {
    my ($file) = @_;
    my ($bug, @all, $pair);
    for my $line (split /\n/, slurp($file)) {
        if ($line =~ /^== (\S+)$/) {
            $bug = {name => $1, tests => [], hang => 0, in => '', pairs => []};
            push @all, $bug;
            undef $pair;
        } elsif (!$bug) {
            next;
        } elsif ($line =~ /^caught by (\S+)(?: (\S+))?$/) {
            push @{$bug->{tests}}, defined $2 ? "$1:$2" : $1;
        } elsif ($line eq 'a hang counts') {
            $bug->{hang} = 1;
        } elsif ($line =~ /^in (\w+)$/) {
            $bug->{in} = $1;
            undef $pair;
        } elsif ($line =~ /^-(.*)$/) {
            if (!$pair || $pair->{new} ne '') {
                $pair = {in => $bug->{in}, old => '', new => ''};
                push @{$bug->{pairs}}, $pair;
            }
            $pair->{old} .= "$1\n";
        } elsif ($line =~ /^\+(.*)$/) {
            die "$file: $bug->{name}: a new text without an old one\n" unless $pair;
            $pair->{new} .= "$1\n";
        } else {
            undef $pair;
        }
    }
    return @all;
}

# Token numbers of the definition of a function: from its name to the end of its body.
sub function {
    my ($name, $t) = @_;
    for my $i (0 .. $#$t) {
        next unless $t->[$i][0] eq $name && $i < $#$t && $t->[$i + 1][0] eq '(';
        my ($depth, $k) = (0, $i + 1);
        for (; $k <= $#$t; $k++) {
            $depth++ if $t->[$k][0] eq '(';
            $depth-- if $t->[$k][0] eq ')';
            last if $depth == 0;
        }
        next unless $k < $#$t && $t->[$k + 1][0] eq '{';
        for ($k++; $k <= $#$t; $k++) {
            $depth++ if $t->[$k][0] eq '{';
            $depth-- if $t->[$k][0] eq '}';
            return ($i, $k) if $depth == 0;
        }
    }
    return;
}

# The text with one pair replaced; dies with the reason if that is impossible.
sub replaced {
    my ($text, $pair) = @_;
    my $t = tokens($text);
    my @old = map { $_->[0] } @{tokens($pair->{old})};
    my ($from, $to) = (0, $#$t);
    die "an empty old text\n" unless @old;
    if ($pair->{in}) {
        ($from, $to) = function($pair->{in}, $t) or die "there is no function $pair->{in}\n";
    }
    my @at;
  PLACE: for my $i ($from .. $to - $#old) {
        for my $k (0 .. $#old) {
            next PLACE if $t->[$i + $k][0] ne $old[$k];
        }
        push @at, $i;
    }
    (my $shown = $pair->{old}) =~ s/\s+/ /g;
    die @at . " places have the old text" . ($pair->{in} ? " in $pair->{in}" : '') . ":$shown\n" unless @at == 1;
    my ($begin, $end) = ($t->[$at[0]][1], $t->[$at[0] + $#old][2]);
    chomp(my $new = $pair->{new});
    return substr($text, 0, $begin) . $new . substr($text, $end);
}

# The text with all pairs of a bug replaced; dies with the reason if that cannot be.
sub planted {
    my ($file, $bug, $text) = @_;
    die "$file: $bug->{name}: has no old text\n" unless @{$bug->{pairs}};
    for my $pair (@{$bug->{pairs}}) {
        $text = eval { replaced($text, $pair) } // die "$file: $bug->{name}: $@";
    }
    return $text;
}

sub spew {
    my ($name, $text) = @_;
    open(my $f, '>', $name) or die "cannot write $name\n";
    print $f $text;
    close($f) or die "cannot write $name\n";
}

my $command = shift @ARGV || '';
if ($command eq 'list') {
    for my $file (@ARGV) {
        my ($header) = $file =~ m{([^/]+)\.txt$};
        print join("\t", $header, $_->{name}, join(' ', @{$_->{tests}}), $_->{hang} ? 'hang' : '-'), "\n" for bugs($file);
    }
} elsif ($command eq 'apply' && @ARGV == 3) {
    my ($file, $name, $directory) = @ARGV;
    my ($header) = $file =~ m{([^/]+)\.txt$};
    my @found = grep { $_->{name} eq $name } bugs($file);
    die "$file: there are " . @found . " bugs $name\n" unless @found == 1;
    my $source = "$directory/$header." . (-f "$directory/$header.c" ? 'c' : 'h');
    spew($source, planted($file, $found[0], slurp($source)));
} elsif ($command eq 'apply_all' && @ARGV == 2) {
    my ($file, $directory) = @ARGV;
    my ($header) = $file =~ m{([^/]+)\.txt$};
    my %text = map { m{([^/]+)$} => slurp($_) } glob "$directory/*.h";
    for my $bug (bugs($file)) {
        my $to = "$directory/$header-$bug->{name}";
        mkdir $to or die "cannot make $to: two bugs of one name?\n";
        my $new = eval { planted($file, $bug, $text{"$header.h"}) };
        spew("$to/plant.log", $@) unless defined $new;
        $_ eq "$header.h" or symlink("../$_", "$to/$_") or die "cannot link $to/$_\n" for keys %text;
        spew("$to/$header.h", $new // $text{"$header.h"});
    }
} else {
    die "usage: plant.pl list FILE... | plant.pl apply FILE NAME DIRECTORY | plant.pl apply_all FILE DIRECTORY\n";
}
